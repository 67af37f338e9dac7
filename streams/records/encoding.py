"""Outputs as records to produce; runs once an event, and is compiled."""

from collections.abc import Iterable
from typing import Final, cast

from state.events import Calibrated, Forecast, Output, Rejected, Resolved
from state.fence import FORECASTS
from streams.config.settings import Settings
from streams.records.output_avro import AvroValues
from streams.records.output_json import encode_calibrated, encode_letter, encode_raw, encode_resolved

#: Key, value, Kafka timestamp (ms) and headers of a record to produce.
EncodedRecord = tuple[bytes | None, bytes, int | None, list[tuple[str, bytes | None]]]
#: No headers; never changed.
NO_HEADERS: Final[list[tuple[str, bytes | None]]] = []


def encode(output: Output, settings: Settings, partition: int) -> tuple[str, int | None, bytes]:
    """Return the label of an output's topic, its Kafka timestamp in ms, and its value in JSON."""
    if isinstance(output, Calibrated):
        return "calibrated", output.ts, encode_calibrated(output)
    if isinstance(output, Resolved):
        return "resolved", output.resolved_ts, encode_resolved(output)
    topic = settings.forecasts if output.topic == FORECASTS else settings.outcomes
    return "dead-letters", None, encode_letter(output, topic, partition, settings.limits)


def key_of(output: Output, settings: Settings) -> bytes | None:
    """Return the key of an output's record: its input's key, unless a dead letter withholds it or it is too long."""
    key = output.key
    if key is not None and isinstance(output, Rejected) and (output.withheld or len(key) > settings.letter_bytes):
        return None
    return key


def answered_raw(output: Output, settings: Settings) -> Forecast | None:
    """Return a dead letter's forecast if it is answered with its raw score; None for other outputs."""
    if not isinstance(output, Rejected) or output.forecast is None:
        return None
    return output.forecast if settings.policies.answers_raw(output.forecast.stream) else None


def raw_answer(output: Rejected, settings: Settings, partition: int) -> EncodedRecord | None:
    """Return the ``calibrated`` record, in JSON, beside a dead letter; None if there is no such answer."""
    forecast = answered_raw(output, settings)
    if forecast is None:
        return None
    value = encode_raw(output, settings.forecasts, partition)
    headers = NO_HEADERS if forecast.carried is None else list(forecast.carried.headers)
    return output.key, value, forecast.ts, headers


def encoded(outputs: Iterable[Output], settings: Settings, partition: int) -> dict[str, list[EncodedRecord]]:
    """Return the records of outputs by the label of their topic, in their order and the format of the settings.

    Dead letters are always JSON: people read them when something is wrong, and they hold records of all kinds.
    """
    made = AvroValues(settings.schema_ids) if settings.schema_ids else None
    calibrated: list[EncodedRecord] = []
    resolved: list[EncodedRecord] = []
    letters: list[EncodedRecord] = []
    for output in outputs:
        if type(output) is Calibrated:
            carried = output.carried
            headers = NO_HEADERS if carried is None else list(carried.headers)
            value = encode_calibrated(output) if made is None else made.calibrated(output)
            calibrated.append((output.key, value, output.ts, headers))
        elif type(output) is Resolved:
            carried = output.carried
            headers = NO_HEADERS if carried is None else list(carried.headers)
            value = encode_resolved(output) if made is None else made.resolved(output)
            resolved.append((output.key, value, output.resolved_ts, headers))
        else:
            letter = cast("Rejected", output)
            _, timestamp, value = encode(letter, settings, partition)
            letters.append((key_of(output, settings), value, timestamp, NO_HEADERS))
            answer = raw_answer(letter, settings, partition)
            if answer is not None:
                if made is not None:
                    answer = (answer[0], made.of_json("calibrated", answer[1]), answer[2], answer[3])
                calibrated.append(answer)
    return {"calibrated": calibrated, "resolved": resolved, "dead-letters": letters}
