"""Golden rows, and the page on the state format: stored bytes change only with a version number."""

import re
from contextlib import suppress

import pytest

from cli import reference
from state import claim, expiry, fence, journal, kinds, ledger, served
from state.fence import FATES
from state.frames import CorruptFrame, OtherFormat, seal
from state.kind import KINDS
from state.scoring.history import WINDOW
from tests.state import golden
from tests.state.golden import Row
from tests.state.histories import ROOT

PAGE = (ROOT / "docs" / "reference" / "state.md").read_text()
ROWS = golden.golden()
CHANGED = (
    "the stored bytes of {name} changed. States written before could not be read: raise the version of this kind of "
    "row in state/, run 'python -m tests.state.golden', and add a line under 'State format' to "
    "CHANGELOG.md"
)


def test_bytes_of_a_stored_row_are_those_of_its_version() -> None:
    for row in ROWS:
        assert row.path.exists(), f"no {row.path.name}: run 'python -m tests.state.golden'"
        assert row.path.read_bytes() == row.frame, CHANGED.format(name=row.name)


def test_stored_row_is_read_and_written_without_a_change() -> None:
    assert [row.name for row in ROWS if row.recode(row.frame) != row.frame] == []


def test_every_kind_of_row_has_a_golden_one_and_is_described_on_the_page_or_by_its_class() -> None:
    assert {row.frame[:1] for row in ROWS} == set(KINDS)
    headings = "".join(re.findall(r"^## (.+)$", PAGE, re.MULTILINE))
    said = dict(re.findall(r"^\| `(.)` \|(?:[^|]*\|){3} ([^|]*) \|", PAGE, re.MULTILINE))
    for letter in (each.decode() for each in KINDS):
        files = re.findall(r"`(.+?)`", said[letter])
        noted = files and all("Bytes" in (ROOT / file).read_text() for file in files)
        assert f"`{letter}`" in headings or noted, letter


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_row_that_is_cut_or_changed_or_of_another_kind_or_version_is_refused(row: Row) -> None:
    stored = row.frame
    damaged = [stored[:at] for at in range(0, len(stored), 1 + len(stored) // 40)]
    damaged += [stored[: len(each)] + bytes((stored[len(each)] ^ 1,)) + stored[len(each) + 1 :] for each in damaged]
    for each in damaged:
        with pytest.raises(CorruptFrame):
            row.recode(each)
    with pytest.raises(OtherFormat, match=r"row has format version 99, this build reads version \d+"):
        row.recode(seal(stored[0], 99, stored[2:-4]))
    with pytest.raises(CorruptFrame, match=r"found a '\?' row where a '.' row belongs"):
        row.recode(seal(ord("?"), stored[1], stored[2:-4]))


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_payload_that_was_cut_before_it_was_sealed_is_refused_or_is_all_of_another_row(row: Row) -> None:
    kind, version, payload = row.frame[0], row.frame[1], row.frame[2:-4]
    most, held = 1 + len(payload) // 400, 0
    for made in (*(payload[:at] for at in range(0, len(payload), most)), payload + b"\0", payload + b"\xff"):
        frame = seal(kind, version, made)
        with suppress(CorruptFrame):
            assert row.recode(frame) == frame
            held += 1
    assert held <= 12, "of entries, or at the end of a ticket or a name"


def test_the_page_shows_the_bytes_the_code_makes() -> None:
    dump = golden.hexdump(kinds.LEDGER.encode(golden.issued()))
    assert f"```text\n{dump}\n```" in PAGE, f"put this hexdump into docs/reference/state.md:\n{dump}"


def fields(heading: str) -> list[tuple[int, str]]:
    """Return how many there are of each field below a heading of the page, and its type."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    named = re.findall(rf"`[a-z_]+` (?:(\d+)×)?({'|'.join(TYPES)})\b", section)
    return [(int(many or 1), kind) for many, kind in named]


TYPES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q", "f64": "d", "bytes4": "4s", "bytes16": "16s"}


def written_out(layout: str) -> str:
    """Return a struct format with a letter for each field."""
    return re.sub(r"(\d+)([^s\d])", lambda match: int(match[1]) * match[2], layout)


@pytest.mark.parametrize(
    ("heading", "layout"),
    [
        ("`O`, `I`, `P`, `M`, `K`, `T`: rows of a partition", claim._HEAD.format),
        ("`F`: the fence", fence._HEAD.format),
        ("`L`: the ledger", ledger.HEAD.format + ledger._NAMES.format[1:]),
        ("`C`: calibrators", served._HEAD.format),
        ("`Q`: the expiry queues", expiry._ENTRY.format),
        ("`Z`: the journal", journal._ENTRY.format),
    ],
)
def test_fields_on_the_page_are_those_of_the_code(heading: str, layout: str) -> None:
    assert "<" + "".join(many * TYPES[kind] for many, kind in fields(heading)) == written_out(layout)


def test_the_page_names_the_fates_in_stored_order() -> None:
    section = PAGE.split("\n## `F`: the fence\n")[1].split("\n## ")[0]
    named = re.findall(r"(\d+) `([a-z_]+)`", section)
    assert named == [(str(n), fate) for n, fate in enumerate(FATES)]


def test_the_page_has_every_kind_of_row_as_it_is_declared() -> None:
    assert reference.state_format(PAGE) == PAGE, "run 'make docs'"
    words = " ".join(PAGE.split())
    assert f"a window of {WINDOW:,} events" in words
    assert f"a chunk holds {expiry.CHUNK} entries" in words
