"""What is taken without a mapping's own reading is what that would have read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.sources.fields import OUTCOME, Compiler
from streams.sources.refusal import Unfit
from streams.sources.shortcuts import NOTHING, TEXT, shortcut, taken

SPECS: dict[str, list[Any]] = {
    "event_id": ["v", {"path": "v", "default": "none"}],
    "p": [
        "v",
        {"path": "v", "scale": "percent"},
        {"path": "v", "scale": [0, 1000]},
        {"path": "v", "scale": "log-odds"},
    ],
    "ts": ["v", {"path": "v", "unit": "ms"}, {"path": "v", "unit": "s"}],
    "y": ["v", {"path": "v", "labels": {"a": 1, "b": 0, "c": "skip"}}, {"path": "v", "labels": {"a": 1, "*": 0}}],
    "revision": ["v"],
}
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(["a", "b", "c", "0.5", "2024-05-01T10:00:00Z"]),
    st.lists(st.integers(), max_size=2),
)


@pytest.mark.parametrize(("field", "spec"), [(field, spec) for field, specs in SPECS.items() for spec in specs])
@given(value=VALUES)
def test_what_is_taken_is_what_would_be_read(field: str, spec: Any, value: Any) -> None:
    place, kind, low, width, labels = shortcut(field, spec)
    if kind == NOTHING:
        return
    assert place == "v"
    found = (value if type(value) is str else None) if kind == TEXT else taken(value, kind, low, width, labels)
    if found is not None:
        read = Compiler()._field(field, spec)
        other = read({"v": value}, (None, (), "t", 0))
        assert (type(other), other) == (type(found), found)


@pytest.mark.parametrize("spec", ["a.b", ["v", "w"], "@key", "{v}", {"constant": "c"}])
def test_what_stands_elsewhere_is_read(spec: Any) -> None:
    assert shortcut("event_id", spec)[1] == NOTHING


def test_every_field_has_a_reading_beside_its_shortcut() -> None:
    ((name, read, _), *_) = Compiler().fields(OUTCOME, {"event_id": "id", "y": "y"})
    assert name == "event_id"
    assert read({"id": 17}, (None, (), "t", 0)) == "17"
    with pytest.raises(Unfit):
        read({"id": 0.5}, (None, (), "t", 0))
