"""Promotion: two calibrators change places in the operator's file, and nothing else does."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.worker import MISCONFIGURED
from cli import promote
from state.policies import Policies
from streams.config import stream_config
from streams.config.settings import SettingsError
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
PROMOTED = """\
# Streams of the fraud team.
early_ttl = "7d"

[streams."fraud-*"]            # all countries
calibrator = "histogram"  # since May
ttl = "45d"
options = { bins = 20 }        # coarse
shadow = [
    "platt",                   # the old one
    { calibrator = "minimax", options = { grid = 20 } },
]

[streams.other]
calibrator = "platt"
"""
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
    before, after, _ = promoted(FORMS[form])
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


@pytest.mark.parametrize("form", FORMS)
def test_promoting_back_restores_what_the_file_means(form: str) -> None:
    before, after, new = promoted(FORMS[form])
    champion = before.of("fraud-eu")
    assert champion is not None
    again = stream_config.parse(promote.rewritten(new, promote.find(after, "fraud-eu", champion.config)), DEFAULT)
    assert again.patterns == before.patterns


def test_comments_and_order_are_kept() -> None:
    assert promoted(COMMENTED)[2] == PROMOTED
    windows = promoted(FORMS["windows"])[2]
    assert windows.count("\r\n") == windows.count("\n") == COMMENTED.count("\n")


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


@pytest.mark.parametrize(
    ("stream", "calibrator", "complaint"),
    [
        (
            "fraud-eu",
            "twospeed",
            r"'twospeed' is not a challenger of streams.\"fraud-\*\"; there are: platt",
        ),
        ("fraud-eu", "minimax", "'minimax' is not a challenger"),
        ("other", "platt", "there are: none"),
        ("third", "platt", "no pattern of the streams file matches 'third'"),
    ],
)
def test_what_is_not_a_challenger_is_refused(stream: str, calibrator: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        promote.find(stream_config.parse(COMMENTED, DEFAULT), stream, calibrator)


def test_of_two_challengers_of_one_name_the_configuration_says_which() -> None:
    text = '[streams.s]\nshadow = [{ calibrator = "minimax", options = { grid = 9 } }, "minimax"]\n'
    policies = stream_config.parse(text, DEFAULT)
    with pytest.raises(SettingsError, match="several challengers called minimax"):
        promote.find(policies, "s", "minimax")
    policy = policies.of("s")
    assert policy is not None
    for place, each in enumerate(policy.challengers):
        assert promote.find(policies, "s", each.config).place == place


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path, trueup: Trueup) -> Path:
    """Return a streams file."""
    path = tmp_path / "streams.toml"
    path.write_text(COMMENTED)
    trueup.set(DEFAULT_CALIBRATOR=DEFAULT, STREAMS=path)
    return path


def untouched(path: Path) -> bool:
    """Return whether the file is as it was and nothing was written beside it."""
    return path.read_text() == COMMENTED and [each.name for each in path.parent.iterdir()] == [path.name]


def test_promotion_shows_the_change_and_makes_it(file: Path, trueup: Trueup) -> None:
    file.chmod(0o640)
    shown = trueup("streams promote fraud-eu histogram")
    assert shown.status == 0
    assert file.read_text() == PROMOTED
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert '-calibrator = "minimax"' in shown.out
    assert '+calibrator = "histogram"' in shown.out
    assert "restart the workers" in shown.out
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_dry_run_changes_nothing(file: Path, trueup: Trueup) -> None:
    assert '+calibrator = "platt"' in trueup("streams promote fraud-eu platt --dry-run").out
    assert untouched(file)


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
