"""The example that reads outputs reads every format, and asks for a schema once."""

from datetime import UTC, datetime
from types import ModuleType

import orjson
import pytest

from state.events import Calibrated, Resolved
from streams.records.decoding import encode_calibrated, encode_resolved
from streams.records.output_avro import AvroValues
from streams.records.output_formats import values
from streams.records.output_protobuf import CLASSES
from streams.records.output_schemas import KINDS, text
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
    registry = StandIn({f"schemas/ids/{number}": {"schema": text(label, "avro")} for label, number in ids.items()})
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


@pytest.mark.parametrize("form", ["protobuf", "jsonschema"])
def test_the_other_formats_are_read(answers: ModuleType, form: str) -> None:
    ids = {"calibrated": 7, "resolved": 8}
    held = {
        f"schemas/ids/{number}": {"schema": text(label, form), "schemaType": KINDS[form]}
        for label, number in ids.items()
    }
    made = values(form, ids)
    assert made is not None
    with StandIn(held).apart() as url:
        for label, value, json in (
            ("calibrated", made.calibrated(ANSWER), encode_calibrated(ANSWER)),
            ("resolved", made.resolved(JOINED), encode_resolved(JOINED)),
        ):
            said, found = orjson.loads(json), answers.Answers(url, CLASSES[label])(value)
            if form == "jsonschema":
                assert found == said
            else:  # a revision of 0 is left out
                assert found == {k: v for k, v in said.items() if v != 0} | (
                    {"calibrated": True} if "ts" in said else {}
                )
