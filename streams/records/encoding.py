"""Makes records from outputs. It runs once an event, and is compiled."""

from collections.abc import Iterable
from typing import Final, cast

from state.events import Calibrated, Carried, Forecast, Output, Rejected, Resolved
from streams.config.settings import Settings
from streams.records.limits import Limits
from streams.records.output_avro import AvroValues
from streams.records.output_json import encode_calibrated, encode_letter, encode_raw, encode_resolved

#: Key, value, Kafka timestamp (ms) and headers of a record to produce.
EncodedRecord = tuple[bytes | None, bytes, int | None, list[tuple[str, bytes | None]]]
#: No headers. This list never changes.
NO_HEADERS: Final[list[tuple[str, bytes | None]]] = []


def headers_of(carried: Carried | None) -> list[tuple[str, bytes | None]]:
    """Return the headers that are copied to an output."""
    return NO_HEADERS if carried is None else list(carried.headers)


def letter(record: Rejected, topic: str, partition: int, limits: Limits) -> EncodedRecord:
    """Return a dead letter. Its key is its input's, unless the letter withholds that key or it is too long."""
    key = record.key
    if key is not None and (record.withheld or len(key) > limits.letter_bytes):
        key = None
    return key, encode_letter(record, topic, partition, limits), None, NO_HEADERS


def answered_raw(output: Output, settings: Settings) -> Forecast | None:
    """Return a dead letter's forecast if it is answered with its raw score; None for other outputs."""
    if not isinstance(output, Rejected) or output.forecast is None:
        return None
    return output.forecast if settings.policies.answers_raw(output.forecast.stream) else None


def raw_answer(
    record: Rejected, forecast: Forecast, topic: str, partition: int, made: AvroValues | None
) -> EncodedRecord:
    """Return the ``calibrated`` record beside a dead letter, in JSON or Avro."""
    value = encode_raw(record, forecast, topic, partition)
    if made is not None:
        value = made.of_json("calibrated", value)
    return forecast.key, value, forecast.ts, headers_of(forecast.carried)


def encoded(outputs: Iterable[Output], settings: Settings, partition: int) -> dict[str, list[EncodedRecord]]:
    """Return the records of outputs, by their topic's label, in order and in the format of the settings.

    Dead letters are always JSON: people read them when something is wrong, and they hold records of all kinds.
    """
    made = AvroValues(settings.schema_ids) if settings.schema_ids else None
    calibrated: list[EncodedRecord] = []
    resolved: list[EncodedRecord] = []
    letters: list[EncodedRecord] = []
    for output in outputs:
        if type(output) is Calibrated:
            value = encode_calibrated(output) if made is None else made.calibrated(output)
            carried = output.carried
            headers = NO_HEADERS if carried is None else list(carried.headers)
            calibrated.append((output.key, value, output.ts, headers))
        elif type(output) is Resolved:
            value = encode_resolved(output) if made is None else made.resolved(output)
            carried = output.carried
            headers = NO_HEADERS if carried is None else list(carried.headers)
            resolved.append((output.key, value, output.resolved_ts, headers))
        else:
            record = cast("Rejected", output)
            topic = settings.inputs[record.topic]
            letters.append(letter(record, topic, partition, settings.limits))
            if (forecast := answered_raw(record, settings)) is not None:
                calibrated.append(raw_answer(record, forecast, topic, partition, made))
    return {"calibrated": calibrated, "resolved": resolved, "dead-letters": letters}
