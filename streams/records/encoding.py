"""Outputs as the records they are produced as; runs once an event, and is compiled."""

from collections.abc import Iterable

from state.events import Calibrated, Output, Rejected, Resolved
from state.fence import FORECASTS
from streams.config.settings import Settings
from streams.records.decoding import encode_calibrated, encode_letter, encode_resolved

#: Key, value and Kafka timestamp (ms) of a record to produce.
EncodedRecord = tuple[bytes | None, bytes, int | None]


def encode(output: Output, settings: Settings, partition: int) -> tuple[str, int | None, bytes]:
    """Return the label of an output's topic, its Kafka timestamp in ms, and its value."""
    if isinstance(output, Calibrated):
        return "calibrated", output.ts, encode_calibrated(output)
    if isinstance(output, Resolved):
        return "resolved", output.resolved_ts, encode_resolved(output)
    topic = settings.forecasts if output.topic == FORECASTS else settings.outcomes
    return "dead-letters", None, encode_letter(output, topic, partition, settings.limits)


def key_of(output: Output, settings: Settings) -> bytes | None:
    """Return the key of an output's record: its input's, unless a dead letter is withheld or may not be as long."""
    key = output.key
    if key is not None and isinstance(output, Rejected) and (output.withheld or len(key) > settings.letter_bytes):
        return None
    return key


def encoded(outputs: Iterable[Output], settings: Settings, partition: int) -> dict[str, list[EncodedRecord]]:
    """Return the records of outputs by the label of their topic, in their order."""
    calibrated: list[EncodedRecord] = []
    resolved: list[EncodedRecord] = []
    letters: list[EncodedRecord] = []
    for output in outputs:
        if type(output) is Calibrated:
            calibrated.append((output.key, encode_calibrated(output), output.ts))
        elif type(output) is Resolved:
            resolved.append((output.key, encode_resolved(output), output.resolved_ts))
        else:
            _, timestamp, value = encode(output, settings, partition)
            letters.append((key_of(output, settings), value, timestamp))
    return {"calibrated": calibrated, "resolved": resolved, "dead-letters": letters}
