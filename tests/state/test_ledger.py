"""Ledger rows."""

from hypothesis import given
from hypothesis import strategies as st

from state import kinds
from state.forecasts import PROBABILITY
from state.ledger import EARLY, IMMATURE, ISSUED, RESOLVED, WAITING, LedgerRow, Shadow, names
from tests.state.histories import STEADY

COUNT = st.integers(0, 2**63 - 1)
NUMBER = st.integers(0, 2**32 - 1)
TIME = st.integers(-(2**63), 2**63 - 1)
FLOAT = st.floats(allow_nan=False)
NAME = st.text(st.characters(exclude_categories=["Cs"]), max_size=255).filter(lambda name: len(name.encode()) <= 255)
CONFIG = st.binary(min_size=4, max_size=4).map(bytes.hex)
SHADOWS = st.lists(st.builds(Shadow, CONFIG, COUNT, FLOAT, FLOAT, st.binary(max_size=70)), max_size=3)
SEGMENTS = st.just((b"", ())) | st.tuples(
    st.binary(min_size=4, max_size=4), st.lists(st.integers(0, 1023), min_size=1, max_size=16).map(tuple)
)
PARTS = st.fixed_dictionaries(
    {
        "status": st.sampled_from([EARLY, ISSUED, RESOLVED, IMMATURE, WAITING]),
        "born": COUNT,
        "kind": st.just(PROBABILITY),
        "issued_ts": TIME,
        "resolved_ts": TIME,
        "y": FLOAT,
        "raw": FLOAT,
        "p": FLOAT,
        "draw": FLOAT,
        "version": COUNT,
        "names": st.builds(names, CONFIG, st.text("abcdefgh_+", max_size=40), NAME),
        "ticket": st.binary(max_size=70),
        "shadows": SHADOWS,
        "as_of": TIME,
        "number": NUMBER,
        "window": NUMBER,
        "revisions": st.integers(0, 255),
        "key": st.none() | st.binary(max_size=40),
        "entity": NUMBER,
        "marks": st.binary(max_size=40).map(lambda said: len(said).to_bytes(2, "little") + said if said else said),
        "frozen": st.booleans(),
    }
)


@STEADY
@given(PARTS, SEGMENTS)
def test_decoded_row_is_the_encoded_one(parts: dict[str, object], segments: tuple[bytes, tuple[int, ...]]) -> None:
    layout, groups = segments
    parts = parts | {"layout": layout, "groups": groups}
    row = LedgerRow(ISSUED, 0)
    for name, value in parts.items():
        setattr(row, name, value)
    frame = kinds.LEDGER.encode(row)
    read = kinds.LEDGER.decode(frame)
    assert {name: getattr(read, name) for name in parts} == parts | {"shadows": parts["shadows"] or ()}
    assert kinds.LEDGER.encode(read) == frame
