"""Plain records are read without a JSON parser, and as the decoder reads them."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.entities import number
from state.events import Forecast, Outcome
from state.policies import Policies
from state.policy import Policy
from streams.records.decoding import KEY_IDS, Decoder
from streams.records.limits import FAR_OFF, Limits
from streams.records.plain import OTHERS, PlainDecoder
from streams.sources.carrying import EVERY, TRACE, Carrier

NOW = 1_700_000_000_000
POLICIES = Policies(
    [("vectors", Policy("multiclass", options={"classes": 3})), ("of", Policy("identity", entity="account"))],
    Policy("identity"),
)
SIMPLE = b'{"event_id":"a","stream":"s","p":0.5}'


def decoders() -> tuple[PlainDecoder, Decoder]:
    """Return both; the second knows no plain records, and both know the streams s and of."""
    limits, decoder = Limits(), Decoder(POLICIES, Limits())
    decoder.plain = None
    plain = PlainDecoder(limits, Carrier(TRACE), Carrier(EVERY), KEY_IDS * limits.id_bytes)
    plain.streams |= {"s": ("s", b"entity"), "of": ("of", b"account")}
    return plain, decoder


def both(value: bytes, timestamp: int = NOW, headers: Any = (), key: bytes = b"k") -> tuple[Any, Any, Any, Any]:
    """Return what each makes of a forecast, then of an outcome."""
    plain, decoder = decoders()
    taken = 7, key, value, timestamp, headers
    return plain.forecast(*taken), decoder.forecast(*taken), plain.outcome(*taken), decoder.outcome(*taken)


@pytest.mark.parametrize("dumps", [orjson.dumps, lambda record: json.dumps(record).encode()])
@pytest.mark.parametrize("p", [0, 1, 0.0, 1.0, 0.5, 0.0001, 0.123456789012345, 0.1234567890123456, 1 / 3, 0.1 + 0.2])
def test_usual_records_are_plain(dumps: Any, p: float) -> None:
    made, same, *_ = both(dumps({"event_id": "a-1 b", "stream": "s", "p": p, "ts": NOW}))
    assert made is not None
    assert made == same
    assert type(made.raw) is float
    *_, known, alike = both(dumps({"ts": NOW - 5, "y": round(p), "event_id": "a"}))
    assert known is not None
    assert known == alike


@pytest.mark.parametrize("stream", ["s", "of"])
@pytest.mark.parametrize("field", ["entity", "account"])
def test_an_entity_is_plain_in_its_field(stream: str, field: str) -> None:
    made, same, *_ = both(orjson.dumps({"event_id": "a", field: "e-1", "stream": stream, "p": 0.5}))
    assert same.entity == number(b"e-1") or (stream, field) == ("s", "account")
    assert made == same or (made is None and same.entity == 0)


@pytest.mark.parametrize(("more", "carried"), [(b"", 1), (b',"origin":["scores@6f/3",17]', 2)])
def test_headers_are_carried_and_all_of_a_record_of_intake(more: bytes, carried: int) -> None:
    sent = ("traceparent", b"00-ab"), ("other", b"x")
    made, same, *_ = both(SIMPLE[:-1] + more + b"}", headers=sent)
    assert made == same
    assert made.carried.headers == sent[:carried]


@pytest.mark.parametrize("scope", ["s", "x" * 126])
def test_what_intake_and_router_write_is_plain(scope: str) -> None:
    origin = "scores@6f/3", 17
    made, same, *_ = both(orjson.dumps({"event_id": "a", "stream": "s", "p": 0.5, "origin": origin, "scope": scope}))
    assert made == same
    assert made.event_id == f"a\n{scope}"
    *_, known, alike = both(orjson.dumps({"event_id": "a", "scope": scope, "y": 1.0, "ts": NOW, "revision": 3}))
    assert known == alike
    assert known.revision == 3


USUAL = {
    "event_id": st.sampled_from(["a", "a b", "x" * 128]),
    "stream": st.sampled_from(["s", "of"]),
    "p": st.floats(0, 1) | st.sampled_from([0, 1, 0.1, 0.00001, 0.1234567890123456]),
    "y": st.sampled_from([0, 1, 0.0, 1.0]),
    "ts": st.sampled_from([NOW, NOW - 1, 0, NOW + 300_000]),
    "entity": st.sampled_from(["e", "e f", "x" * 128]),
    "account": st.sampled_from(["a", "x" * 128]),
    "scope": st.sampled_from(["s", "s t", "x" * 126, "x" * 127]),
    "revision": st.sampled_from([1, 7, 2**32 - 1]),
    "origin": st.sampled_from([["scores@6f/3", 17], ["a b", 0]]),
}
KINDS = ["event_id", "stream", "p", "ts"], ["event_id", "y", "ts"], ["p", "event_id", "y"]
MORE = "", "", "entity", "account", "entity account", "scope", "scope revision", "scope origin", "origin"
TIMES = (NOW + 300_001, NOW - FAR_OFF - 1, 10**17, 10**18, 10**19)
ORIGINS = (["", 1], ["a", -1], ["a", 1, 1], ["a", 10**19], ["a"], ["a", "1"])
TEXTS = ("", "vectors", "unknown", 'a"b', "a\\b", "é", "\x7f", "\n", "x" * 129)
UNUSUAL: st.SearchStrategy[Any] = st.sampled_from(
    [*TEXTS, *TIMES, *ORIGINS, 2**32, None, True, "0.5", -1, -0.0, 2, 10, 1e300, [], {}]
)
FIELDS = st.sampled_from([*USUAL, "x", "q", "events", "t", ""])
SPACES = st.sampled_from(["", "", "", "", "", "", " ", " ", "  ", "\n"])
SEVERAL = st.sampled_from([0, 0, 0, 1, 2])


@st.composite
def near(draw: st.DrawFn) -> bytes:
    """Return the text of an object that is plain, or nearly so."""
    names = draw(st.sampled_from(KINDS)) + draw(st.sampled_from(MORE)).split()
    record = [(name, draw(USUAL[name])) for name in draw(st.permutations(names))]
    for _ in range(draw(SEVERAL)):
        record[draw(st.integers(0, len(record) - 1))] = draw(FIELDS), draw(UNUSUAL | USUAL["p"])
    more, ascii_only = draw(SPACES), draw(st.booleans())
    parts = [f'"{name}":{more}{json.dumps(value, ensure_ascii=ascii_only)}' for name, value in record]
    made = bytearray(("{" + f",{draw(SPACES)}".join(parts) + "}").encode())
    for _ in range(draw(SEVERAL)):
        at = draw(st.integers(0, len(made)))
        made[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2) | st.sampled_from([b"0", b".", b"1e-3"]))
    return bytes(made)


@given(near() | st.binary(max_size=60), st.sampled_from([NOW, 0, 253_402_300_800_000]))
def test_what_is_plain_is_read_as_by_the_decoder(value: bytes, timestamp: int) -> None:
    made, same, known, alike = both(value, timestamp)
    assert made is None or (made == same and repr(made) == repr(same) and type(made) is Forecast)
    assert known is None or (known == alike and repr(known) == repr(alike) and type(known) is Outcome)


def test_a_record_beyond_its_limits_is_left_to_the_decoder() -> None:
    assert both(SIMPLE)[0] is not None
    assert both(SIMPLE, key=b"k" * (KEY_IDS * Limits().id_bytes + 1))[0] is None
    assert both(b'{"event_id":"%b","stream":"s","p":0.5}' % (b"x" * 70_000))[0] is None


def test_records_that_are_not_plain_are_tried_ever_more_rarely() -> None:
    plain, _ = decoders()
    left = 0
    for _ in range(300):
        assert plain.forecast(0, b"k", b'{"event_id":"a","stream":"s","p":0.5,"x":[0]}', NOW, ()) is None
    while plain.forecast(0, b"k", SIMPLE, NOW, ()) is None:
        left += 1
    assert 0 < left <= OTHERS
    assert plain.forecast(0, b"k", SIMPLE, NOW, ()) is not None


@pytest.mark.parametrize(
    "policy",
    [Policy("identity", segments=("a",))] + [Policy("identity", entity=each) for each in ("e.f", "ts", "probs")],
)
def test_streams_that_have_more_are_left_to_the_decoder(policy: Policy) -> None:
    decoder = Decoder(Policies(default=policy), Limits())
    limits = Limits()
    decoder.plain = PlainDecoder(limits, Carrier(TRACE), Carrier(EVERY), KEY_IDS * limits.id_bytes)
    simple = Decoder(Policies(default=Policy("identity")), limits)
    simple.plain = PlainDecoder(limits, Carrier(TRACE), Carrier(EVERY), KEY_IDS * limits.id_bytes)
    for each in (decoder, simple):
        each.forecast(0, b"k", SIMPLE, NOW)
    assert not decoder.plain.streams
    assert list(simple.plain.streams) == ["s"]
