"""Commands change one thing in the operator's file, and write it down: who serves, or whether a map is frozen."""

import asyncio
import os
import stat
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.worker import MISCONFIGURED
from cli import condition, promote, show
from state import kinds
from state.policies import Policies
from state.scoring.comparison import Comparison
from state.served import Served
from streams.config import stream_config
from streams.config.settings import SettingsError
from streams.kafka.topics import TopicsError
from streams.metrics.rows import StateRows
from tests.commands import Ended, Trueup

DEFAULT = "platt+minimax"
COMMENTED = """\
# Streams of the fraud team.
early_ttl = "7d"

[streams."fraud-*"]            # all countries
calibrator = "minimax"  # since May
ttl = "45d"
options = { grid = 20 }        # coarse
shadow = [
    "platt",                   # the old one
    { calibrator = "histogram", options = { bins = 20 } },
]

[streams.other]
calibrator = "platt"
"""
PROMOTED = (
    COMMENTED.replace('"minimax"  #', '"histogram"  #')
    .replace("{ grid = 20 }        #", "{ bins = 20 }        #")
    .replace('"histogram", options = { bins = 20 }', '"minimax", options = { grid = 20 }')
)
FORMS = {
    "commented": COMMENTED,
    "windows": COMMENTED.replace("\n", "\r\n"),
    "without options": '[streams."fraud-*"]\ncalibrator = "minimax"\nshadow = ["platt", "histogram"]\n',
    "default": '[streams."fraud-*"]\nshadow = ["platt", "histogram"] # two\n\n# the end\n',
    "options of the other": '[streams."fraud-*"]\nshadow = [{ calibrator = "histogram", options = { bins = 9 } }]\n',
    "options of the champion": (
        '[streams."fraud-*"]\ncalibrator = "minimax"\noptions = { grid = 20, buckets = 3 }\nshadow = ["histogram"]\n'
    ),
    "tables": (
        '[streams."fraud-*"]\ncalibrator = "minimax"\n[streams."fraud-*".options]\ngrid = 20\n'
        '[[streams."fraud-*".shadow]]\ncalibrator = "platt"\n'
        '[[streams."fraud-*".shadow]]\ncalibrator = "histogram"\n[streams."fraud-*".shadow.options]\nbins = 20\n'
        "[streams.other]\n"
    ),
    "inline": 'streams = { "fraud-*" = { calibrator = "minimax", shadow = ["histogram"] }, other = { seed = 3 } }\n',
    "dotted": 'streams."fraud-*".calibrator = "minimax"\nstreams."fraud-*".shadow = ["histogram"]\nclosed = true\n',
    "features": (
        '[streams."fraud-*"]\ncalibrator = "minimax"\nfeatures = ["a", "b"]\nseed = 3\n'
        'shadow = ["histogram", { calibrator = "platt" }]\n[streams."*"]\nttl = "3d"\nshadow = ["twospeed"]\n'
    ),
    "apart": '[streams."fraud-*"]\nshadow = ["histogram"]\n[streams.b]\nttl = "3d"\n',
}


def promoted(text: str, calibrator: str = "histogram") -> tuple[Policies, Policies, str]:
    """Return the policies before and after, and the new text."""
    before = stream_config.parse(text, DEFAULT)
    change = promote.find(before, "fraud-eu", calibrator)
    new = promote.rewritten(text, change)
    return before, stream_config.parse(new, DEFAULT), new


@pytest.mark.parametrize("form", FORMS)
def test_champion_and_challenger_change_places_and_nothing_else_does(form: str) -> None:
    before, after, text = promoted(FORMS[form])
    assert text.count("\r\n") == FORMS[form].count("\r\n"), "as the file has its lines"
    was, now = before.of("fraud-eu"), after.of("fraud-eu")
    assert was is not None
    assert now is not None
    assert now.calibrator == "histogram"
    place = [each.calibrator for each in was.challengers].index("histogram")
    assert now.config == was.challengers[place].config
    expected = [each.config for each in was.challengers]
    expected[place] = was.config
    assert [each.config for each in now.challengers] == expected
    assert (now.ttl_ms, now.seed, now.features) == (was.ttl_ms, was.seed, was.features)
    assert after.patterns[1:] == before.patterns[1:]
    assert (after.default, after.early_ttl_ms) == (before.default, before.early_ttl_ms)


OPTIONS = st.fixed_dictionaries({}, optional={"grid": st.integers(2, 60), "buckets": st.integers(1, 20)})


@given(OPTIONS, st.lists(OPTIONS, min_size=1, max_size=4), st.data())
def test_whatever_the_options_the_swap_means_a_swap(
    champion: dict[str, int], others: list[dict[str, int]], data: st.DataObject
) -> None:
    def table(options: dict[str, int]) -> str:
        return "{" + ", ".join(f"{name} = {value}" for name, value in options.items()) + "}"

    shadow = ", ".join(f'{{ calibrator = "minimax", options = {table(each)} }}' for each in others)
    text = f'[streams.s]\ncalibrator = "minimax"\noptions = {table(champion)}\nshadow = [{shadow}, "identity"]\n'
    try:
        before = stream_config.parse(text, DEFAULT)
    except ValueError:
        return  # two of them are the same
    policy = before.of("s")
    assert policy is not None
    meant = data.draw(st.sampled_from([each.config for each in policy.challengers]))
    change = promote.find(before, "s", meant)
    now = stream_config.parse(promote.rewritten(text, change), DEFAULT).of("s")
    assert now is not None
    assert (now.config, now.recipe) == (meant, change.challenger.recipe)
    assert sorted(each.config for each in (now, *now.challengers)) == sorted(
        each.config for each in (policy, *policy.challengers)
    )


TWINS = '[streams.s]\nshadow = [{ calibrator = "minimax", options = { grid = 9 } }, "minimax"]\n'


@pytest.mark.parametrize(
    ("text", "stream", "calibrator", "complaint"),
    [
        (
            COMMENTED,
            "fraud-eu",
            "twospeed",
            r"'twospeed' is not a challenger of streams.\"fraud-\*\"; there are: platt",
        ),
        (COMMENTED, "fraud-eu", "minimax", "'minimax' is not a challenger"),
        (COMMENTED, "other", "platt", "there are: none"),
        (COMMENTED, "third", "platt", "no pattern of the streams file matches 'third'"),
        (TWINS, "s", "minimax", "several challengers called minimax"),  # their configurations tell them apart
    ],
)
def test_what_is_not_a_challenger_or_one_of_two_is_refused(
    text: str, stream: str, calibrator: str, complaint: str
) -> None:
    with pytest.raises(SettingsError, match=complaint):
        promote.find(stream_config.parse(text, DEFAULT), stream, calibrator)


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def file(streams: Path, trueup: Trueup) -> Path:
    """Return a streams file, with a state in which the challenger was compared on two streams of its pattern."""
    streams.write_text(COMMENTED)
    policy = stream_config.parse(COMMENTED, DEFAULT).of("fraud-eu")
    assert policy is not None
    champion, challenger = policy.config, policy.challengers[1].config
    comparison = Comparison()
    for i in range(10):
        comparison.observe(0.5, 0.25, float(i % 4 == 0), 0.25)
    rows = {
        stream: {
            kinds.CALIBRATOR.key(stream, champion): kinds.CALIBRATOR.encode(Served.fresh(policy.recipe, stream)),
            kinds.COMPARISON.key(stream, champion, challenger): kinds.COMPARISON.encode(comparison),
        }
        for stream in ("fraud-eu", "fraud-us", "other")
    }
    found = StateRows({0: rows})

    async def read(_: object) -> StateRows:
        return found

    trueup.patch.setattr(show, "read", read)
    trueup.patch.setenv("USER", "grace")
    trueup.set(DEFAULT_CALIBRATOR=DEFAULT)
    return streams


def lines(path: Path) -> list[dict[str, Any]]:
    audit = path.with_name(path.name + ".audit.jsonl")
    return [orjson.loads(line) for line in audit.read_bytes().splitlines()] if audit.exists() else []


def untouched(path: Path) -> bool:
    """Return whether the file is as it was and nothing was written beside it."""
    return path.read_text() == COMMENTED and [each.name for each in path.parent.iterdir()] == [path.name]


def test_promotion_shows_the_change_and_writes_it_down(file: Path, trueup: Trueup) -> None:
    file.chmod(0o640)
    shown = trueup("streams promote fraud-eu histogram --reason", "lower Brier since June")
    after = stream_config.parse(file.read_text(), DEFAULT).of("fraud-eu")
    assert after is not None
    assert (shown.status, after.calibrator) == (0, "histogram")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    (line,) = lines(file)
    assert (line["who"], line["reason"], line["pattern"]) == ("grace", "lower Brier since June", "fraud-*")
    assert (line["from"]["calibrator"], line["from"]["options"]) == ("minimax", {"grid": 20})
    assert (line["to"]["calibrator"], line["to"]["config"]) == ("histogram", after.config)
    assert line["before"] == sha256(COMMENTED.encode()).hexdigest()
    assert line["after"] == sha256(file.read_bytes()).hexdigest()
    figures = line["figures"]
    assert (figures["streams"], figures["events"]) == (2, 20), "'other' is another pattern's"
    assert line["names"] == ["fraud-eu", "fraud-us"]
    assert figures["difference"]["brier"]["mean"] < 0
    assert '-calibrator = "minimax"' in shown.out
    assert '+calibrator = "histogram"' in shown.out
    assert "restart the workers" in shown.out
    assert sorted(path.name for path in file.parent.iterdir()) == ["streams.toml", "streams.toml.audit.jsonl"]


def test_dry_run_changes_nothing(file: Path, trueup: Trueup) -> None:
    shown = trueup("streams promote fraud-eu platt --dry-run").out
    assert '+calibrator = "platt"' in shown
    assert "streams that change: 2: fraud-eu, fraud-us\n" in shown
    assert untouched(file)


@pytest.mark.usefixtures("file")
def test_cold_challenger_is_named_as_such(trueup: Trueup) -> None:
    assert "has learnt nothing" in trueup("streams promote fraud-eu platt").out


@pytest.mark.usefixtures("file")
def test_a_challenger_that_has_learnt_what_nobody_compared_is_not_called_cold(trueup: Trueup) -> None:
    assert trueup("streams promote fraud-eu histogram").status == 0
    found = asyncio.run(show.read(None))  # type: ignore[arg-type]
    for served in found.of(kinds.CALIBRATOR, "fraud-us").values():
        served.calibrator.update(served.calibrator.predict(0.5).ticket, 1.0)
    shown = trueup("streams rollback")  # of workers that have not been restarted
    assert "serving and the other beside it: nothing says which is better\n" in shown.out


@pytest.mark.parametrize(
    ("enough", "errors", "loss", "status", "said"),
    [
        (20, 0.5, "brier", 0, "restart the workers"),
        (21, 0.5, "brier", 1, "histogram is not promoted: 20 events have resolved under both, 21 are asked for"),
        (20, 2.0, "brier", 1, "it has to be two errors below 0"),
        (20, 0.5, "pinball", MISCONFIGURED, "this kind of stream has the losses brier, log"),
        (20, 0.5, "better soon", MISCONFIGURED, "write LOSS, or 'LOSS better for N days'"),
    ],
)
def test_who_is_not_better_by_the_loss_that_is_asked_for_is_not_promoted(
    enough: int, errors: float, loss: str, status: int, said: str, file: Path, trueup: Trueup
) -> None:
    trueup.patch.setattr(condition, "ENOUGH_EVENTS", enough)
    trueup.patch.setattr(condition, "SURE_ERRORS", errors)
    ended = trueup("streams promote fraud-eu histogram --when", loss)
    assert ended.status == status
    assert said in ended.out + ended.err
    assert untouched(file) == bool(status)


def test_who_was_better_for_days_by_looks_of_each_day_is_promoted_where_that_is_wanted(
    file: Path, trueup: Trueup
) -> None:
    trueup.patch.setattr(condition, "ENOUGH_EVENTS", 20)
    trueup.patch.setattr(condition, "SURE_ERRORS", 0.5)
    day, found = datetime(2026, 3, 1, 6, 0, 9, tzinfo=UTC), asyncio.run(show.read(None))  # type: ignore[arg-type]

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # of the day that the test says
            return day.astimezone(tz)

    def ended(challenger: float, *more: str) -> Ended:
        """Let ten events of a day resolve in each stream, of which one in four is 1; then look."""
        for stream in ("fraud-eu", "fraud-us"):
            (comparison,) = found.of(kinds.COMPARISON, stream).values()
            assert isinstance(comparison, Comparison)
            for i in range(10):
                comparison.observe(0.5, challenger, float(i % 4 == 0), challenger)
        return trueup("streams promote fraud-eu histogram --when", "brier better for 2 days", *more)

    trueup.patch.setattr(promote, "datetime", Clock)
    assert "2 days are over on 2026-03-03" in ended(0.25, "--dry-run").err
    assert untouched(file)
    for challenger, status, said in (
        (0.25, 1, "the first look is of 2026-03-01: 2 days are over on 2026-03-03"),
        (0.75, 1, "the first look is of 2026-03-01"),
        (0.75, 1, "since 2026-03-01; it has to be two errors below 0"),  # it was better, and is so no more
        (0.25, 1, "since 2026-03-02; it has to be"),
        (0.25, 0, "nothing was changed"),
    ):
        shown = ended(challenger)
        assert shown.status == status
        assert said in shown.out + shown.err
        assert file.read_text() == COMMENTED
        if day.day == 2:  # the writer of this line died
            with file.with_name("streams.toml.looks.jsonl").open("ab") as looks:
                looks.write(b'{"at":"2026-03\n')
        day += timedelta(days=1, seconds=-1)  # a look may take longer than another
    assert len(file.with_name("streams.toml.looks.jsonl").read_bytes().splitlines()) == 6
    assert "restart the workers" in ended(0.25, "--apply").out
    assert file.read_text() == PROMOTED


def test_rollback_undoes_the_last_promotion_and_is_written_down(file: Path, trueup: Trueup) -> None:
    assert "does not end with a promotion" in trueup("streams rollback").error
    assert trueup("streams promote fraud-eu histogram").status == 0
    assert '+calibrator = "minimax"' in trueup("streams rollback --dry-run").out
    assert file.read_text() == PROMOTED
    shown = trueup("streams rollback --json").json
    assert file.read_text() == COMMENTED
    promotion, back = lines(file)
    assert shown.items() > back.items()
    assert (back["from"], back["to"], back["before"]) == (promotion["to"], promotion["from"], promotion["after"])
    assert back["reason"] == f"rollback of {promotion['at']}"


def test_what_was_changed_since_the_promotion_is_not_rolled_back(file: Path, trueup: Trueup) -> None:
    assert trueup("streams promote fraud-eu histogram").status == 0
    file.write_text(changed := PROMOTED.replace('"45d"', '"46d"'))
    assert "was changed since the promotion" in trueup("streams rollback").error
    assert (file.read_text(), len(lines(file))) == (changed, 1)
    with file.with_name("streams.toml.audit.jsonl").open("ab") as audit:
        audit.write(b'{"at":"2026-03')  # the writer of this line died
    assert "does not end with a promotion" in trueup("streams rollback").error


def test_who_has_no_name_is_written_down_by_number(file: Path, trueup: Trueup) -> None:
    def nobody(_: int) -> None:
        raise KeyError

    trueup.patch.delenv("USER")
    trueup.patch.setattr("pwd.getpwuid", nobody)
    assert trueup("streams promote fraud-eu platt").status == 0
    assert lines(file)[0]["who"] == str(os.getuid())


def test_without_a_state_to_read_the_line_says_why_it_has_no_figures(file: Path, trueup: Trueup) -> None:
    async def read(_: object) -> StateRows:
        raise TopicsError("there is no topic trueup-state-changelog")

    trueup.patch.setattr(show, "read", read)
    assert "no figures" in trueup("streams promote fraud-eu platt").out
    (line,) = lines(file)
    assert (line["figures"], line["figures_missing"]) == (None, "there is no topic trueup-state-changelog")


def test_what_cannot_be_promoted_is_refused_in_a_line_and_changes_no_file(file: Path, trueup: Trueup) -> None:
    def refused(calibrator: str) -> Ended:
        ended = trueup(f"streams promote fraud-eu {calibrator}")
        assert ended.status == MISCONFIGURED
        return ended

    assert refused("twospeed").error.startswith("trueup: 'twospeed' is not a challenger")
    rewritten = promote.rewritten
    trueup.patch.setattr(promote, "rewritten", lambda *given: rewritten(*given).replace('"45d"', '"46d"'))
    assert "change it by hand" in refused("platt").error
    assert untouched(file)
    file.write_text(COMMENTED + 'ttl = "soon"\n')
    assert "'soon' is not a duration" in refused("platt").error
    file.unlink()
    assert "cannot read" in refused("platt").error
    trueup.patch.delenv("TRUEUP_STREAMS")
    assert refused("platt").error
    assert list(file.parent.iterdir()) == []


def test_of_a_link_the_target_is_rewritten(file: Path, trueup: Trueup) -> None:
    link = file.parent / "current.toml"
    link.symlink_to(file.name)
    assert trueup("streams promote fraud-eu platt --streams", link).status == 0
    assert link.is_symlink()
    assert 'calibrator = "platt"' in file.read_text()


# -- freezing ------------------------------------------------------------------------------------------------------


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
    first, last = lines(file)
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
    assert untouched(file)
    ended = trueup("streams freeze card")
    assert (ended.status, 'write [streams."card"] first' in ended.err) == (MISCONFIGURED, True)
