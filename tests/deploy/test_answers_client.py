"""The example that reads outputs reads JSON and Avro, and asks for a schema once."""

from datetime import UTC, datetime
from types import ModuleType

import orjson
import pytest

from state.events import Calibrated, Resolved
from streams.records.output_avro import AvroValues
from streams.records.output_json import encode_calibrated
from streams.records.output_schemas import text
from tests.e2e.world import ROOT
from tests.streams.sources.registries import StandIn

NOW = 1_700_000_000_000
ANSWER = Calibrated(b"k", "e", "s", 0.3, 0.1 + 0.2, 0.25, "prudent", "0123abcd", 70, NOW, 12)
JOINED = Resolved(b"k", "e", "s", 0.3, 0.1 + 0.2, 0.25, 1.0, "prudent", 70, NOW, NOW + 1, 0, implied=True)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the example as somebody has it who has copied the file."""
    monkeypatch.syspath_prepend(ROOT / "deploy/clients/python")
    import answers  # type: ignore[import-not-found]  # noqa: PLC0415 - found now

    return answers  # type: ignore[no-any-return]


def test_json_and_avro_are_read_and_a_schema_is_asked_for_once(answers: ModuleType) -> None:
    ids = {"calibrated": 7, "resolved": 8}
    registry = StandIn({f"schemas/ids/{number}": {"schema": text(label)} for label, number in ids.items()})
    with registry.apart() as url:
        read = answers.Answers(f"{url}/")
        said = read(encode_calibrated(ANSWER))
        assert said == orjson.loads(encode_calibrated(ANSWER))
        assert registry.asked == []
        for _ in range(2):
            found = read(AvroValues(ids).calibrated(ANSWER))
            assert {name: found[name] for name in said} == said | {"ts": datetime.fromtimestamp(NOW / 1000, UTC)}
            assert (found["calibrated"], found["probs"]) == (True, None)
        assert read(AvroValues(ids).resolved(JOINED))["implied"] is True
        assert registry.asked == ["schemas/ids/7", "schemas/ids/8"]
