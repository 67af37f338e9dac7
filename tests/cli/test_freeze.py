"""A stream's map is frozen and thawed in the operator's file: nothing else changes, and it is written down."""

from hashlib import sha256
from pathlib import Path

import orjson
import pytest

from agents.worker import MISCONFIGURED
from streams.config import stream_config
from tests.cli.test_promote import COMMENTED, DEFAULT, FORMS
from tests.commands import Trueup


@pytest.fixture
def file(streams: Path) -> Path:
    streams.write_text(COMMENTED)
    return streams


def audited(file: Path) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in Path(f"{file}.audit.jsonl").read_bytes().splitlines()]


@pytest.mark.parametrize("form", FORMS)
def test_only_the_pattern_of_the_stream_is_frozen_and_thawing_restores_what_the_file_means(
    form: str, file: Path, trueup: Trueup
) -> None:
    file.write_bytes(FORMS[form].encode())
    before = stream_config.parse(FORMS[form], DEFAULT)
    assert trueup("streams freeze fraud-eu").status == 0
    after = stream_config.parse(file.read_text(), DEFAULT)
    assert [policy.frozen for _, policy in after.patterns] == [pattern == "fraud-*" for pattern, _ in after.patterns]
    assert [policy.config for _, policy in after.patterns] == [policy.config for _, policy in before.patterns]
    assert trueup("streams thaw fraud-eu").status == 0
    assert stream_config.parse(file.read_text(), DEFAULT).patterns == before.patterns


def test_each_change_is_written_down_with_its_reason_and_the_hashes_of_both_texts(file: Path, trueup: Trueup) -> None:
    told = trueup("streams freeze fraud-eu --reason review --json")
    frozen = file.read_bytes()
    assert orjson.loads(told.out)["difference"].count("+frozen = true") == 1
    assert trueup("streams thaw fraud-eu").status == 0
    assert file.read_text() == COMMENTED, "comments and order are kept"
    first, last = audited(file)
    assert (first["pattern"], first["stream"], first["frozen"], first["reason"]) == (
        "fraud-*",
        "fraud-eu",
        True,
        "review",
    )
    assert first["before"] == last["after"] == sha256(COMMENTED.encode()).hexdigest()
    assert first["after"] == last["before"] == sha256(frozen).hexdigest()
    assert last["frozen"] is False


def test_what_is_so_already_is_told_and_a_dry_run_changes_nothing(file: Path, trueup: Trueup) -> None:
    ended = trueup("streams thaw fraud-eu")
    assert (ended.status, "thawed already" in ended.err) == (1, True)
    assert "nothing was changed" in trueup("streams freeze fraud-eu --dry-run").out
    assert file.read_text() == COMMENTED
    assert not Path(f"{file}.audit.jsonl").exists()
    ended = trueup("streams freeze card")
    assert (ended.status, 'write [streams."card"] first' in ended.err) == (MISCONFIGURED, True)
