"""The streams file: patterns in order, and whatever is not allowed is said with its place."""

import pytest

from state.bands import Bands, Points
from state.policy import DEFAULT_TTL_MS, Policy
from streams.config import stream_config

DEFAULT = "platt+minimax"
DAY = 86_400_000


def refused(text: str) -> str:
    """Return what is said of a file that is refused."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the callers look at what it says
        stream_config.parse(text, DEFAULT)
    return str(caught.value)


def policy(text: str, stream: str = "s") -> Policy:
    found = stream_config.parse(text, DEFAULT).of(stream)
    assert found is not None
    return found


def test_an_empty_file_gives_every_stream_the_default() -> None:
    assert policy("") == Policy(DEFAULT)
    assert stream_config.parse("", "platt").of("s") == Policy("platt")
    assert stream_config.parse("", DEFAULT).early_ttl_ms == DEFAULT_TTL_MS


def test_the_first_pattern_that_matches_counts() -> None:
    text = """
        [streams."fraud-eu"]
        calibrator = "identity"
        [streams."fraud-*"]
        calibrator = "platt"
        [streams."fraud-us"]
        calibrator = "minimax"
    """
    names = {stream: policy(text, stream).calibrator for stream in ("fraud-eu", "fraud-us", "FRAUD-us", "x-fraud-eu")}
    assert names == {"fraud-eu": "identity", "fraud-us": "platt", "FRAUD-us": DEFAULT, "x-fraud-eu": DEFAULT}


def test_a_closed_file_has_only_the_streams_it_matches() -> None:
    policies = stream_config.parse('closed = true\n[streams."a*"]\n', DEFAULT)
    assert policies.of("ab") == Policy(DEFAULT)
    assert policies.of("b") is None


def test_labels_are_as_the_stream_says() -> None:
    text = '[streams.s]\nmatures = "45d"\nsilence = 0\nrevisable = "120d"'
    found, day = policy(text), 86_400_000
    assert (found.matures_ms, found.silence, found.waits, found.kept_ms) == (45 * day, 0.0, True, 120 * day)
    assert found.ttl_ms == 75 * day, "matures and 30 days more"
    assert not policy('[streams.s]\nmatures = "45d"\nlearn = "arrival"').waits
    assert not policy("").waits


def test_a_stream_may_have_segments_and_pairs_of_them() -> None:
    found = policy('[streams.s]\nsegments = ["country", "channel"]\npairs = [["channel", "country"]]')
    assert (found.segments, found.pairs) == (("country", "channel"), (("channel", "country"),))
    assert not found.segments_required
    assert found.config == policy("").config, "a calibrator that uses no segments serves the same"
    required = policy('[streams.s]\nsegments = ["country"]\nsegments_required = true')
    assert required.segments_required
    assert len({found.layout, required.layout, policy("").layout}) == 3


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1ms", 1),
        ("90s", 90_000),
        ("5m", 300_000),
        ("12h", DAY // 2),
        ("30d", 30 * DAY),
        ("999999999d", 999_999_999 * DAY),
    ],
)
def test_durations_are_read(text: str, ms: int) -> None:
    assert stream_config.duration(text) == ms
    assert stream_config.parse(f'early_ttl = "{text}"', DEFAULT).early_ttl_ms == ms
    assert policy(f'[streams.s]\nttl = "{text}"').ttl_ms == ms


@pytest.mark.parametrize(
    "bad", ["", "30", "d", "-1d", "1.5h", "1w", "1 d", " 1d", "1d\n", "1D", "1000000000d", 30, None]
)
def test_what_is_not_a_duration_is_refused_with_an_example(bad: object) -> None:
    with pytest.raises(ValueError, match=r"is not a duration such as 90s, 12h or 30d"):
        stream_config.duration(bad)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\nclosed = x", "the streams file is not TOML: Invalid value (at line 2"),
        ("stream = {}", "has no setting 'stream'; there are: closed, early_ttl, on_error, carry_headers, streams"),
        ("closed = 1", "closed must be of type bool, got 1"),
        ("streams = []", "streams must be of type dict"),
        ("early_ttl = 7", "early_ttl: 7 is not a duration such as 90s, 12h or 30d"),
        ("streams.s = 1", 'streams."s" must be a table'),
        ("[streams.s]\nbands = { a = 0.02, a = 0.3 }", "Duplicate inline table key 'a' (at line 2"),
        ('[streams."a-*"]\ncalibrater = "platt"', "streams.\"a-*\": a stream has no setting 'calibrater'; there are: "),
        ('[streams."a-*"]\ncalibrater = "platt"', "matures, silence, unlabelled, learn, revisable"),
    ],
)
def test_what_is_not_allowed_is_refused_with_its_place_and_what_is(text: str, said: str) -> None:
    assert said in refused(text)


@pytest.mark.parametrize("text", ["early_ttl = " + "[" * 100_000, "early_ttl = " + "{a=" * 100_000])
def test_a_file_that_nests_without_end_is_refused(text: str) -> None:
    assert "nested too deeply" in refused(text)


def test_challengers_are_names_or_tables_with_options() -> None:
    text = """
        [streams."s*"]
        calibrator = "platt"
        features = ["amount", "age"]
        seed = 3
        ttl = "2d"
        shadow = ["minimax", { calibrator = "minimax", options = { grid = 20 } }, { calibrator = "platt+minimax" }]
    """
    found = policy(text)
    assert found.config == Policy("platt", features=("amount", "age"), seed=3).config
    same = {"features": ("amount", "age"), "seed": 3, "ttl_ms": 2 * DAY}
    assert found.challengers == (
        Policy("minimax", **same),  # type: ignore[arg-type]  # each by its own type
        Policy("minimax", {"grid": 20}, **same),  # type: ignore[arg-type]
        Policy("platt+minimax", **same),  # type: ignore[arg-type]
    )


def test_a_stream_may_have_shards_and_a_count_of_features() -> None:
    assert policy("[streams.s]\nshards = 4").shards == 4
    assert policy("[streams.s]\nseed = 1").shards == 1
    assert policy('[streams.s]\ncalibrator = "calibrated_regression"\nfeatures = 3').n_features == 3


# -- bands and points --------------------------------------------------------------------------------------------------


def test_bands_begin_at_probabilities_or_have_shares() -> None:
    fixed = policy("[streams.s]\nbands = { pass = 0, review = 0.02, block = 0.3 }\nhold = 'volume'").bands
    assert fixed == Bands(("pass", "review", "block"), (0.0, 0.02, 0.3), hold=True)
    assert policy("[streams.s]\nbands = { high = 0.5 }").bands == Bands(("", "high"), (0.0, 0.5))
    shares = Bands(("", "review", "block"), shares=(0.02, 0.0015))
    assert policy("[streams.s]\nbands = { review = '2%', block = '0.15%' }").bands == shares
    for lowest in ("0", "0.0", "'100%'"):
        assert policy(f"[streams.s]\nbands = {{ pass = {lowest}, review = '2%' }}").bands == Bands(
            ("pass", "review"), shares=(0.02,)
        )


def test_points_and_costs_are_numbers() -> None:
    text = "[streams.s]\nbands = { b = 0.5 }\npoints = { base = 600, odds = 50, double = 20 }\n"
    found = policy(text + "cost_miss = 300\ncost_alert = 2.5")
    assert (found.points, found.costs) == (Points(600, 50, 20), (300.0, 2.5))
    assert policy(text).costs is None


def test_weight_and_label_rate_are_paths_and_the_rate_may_be_a_number() -> None:
    found = policy('[streams.s]\nweight = "payment.amount"\nlabel_rate = "decision.chance"')
    assert (found.weight, found.label_rate) == ("payment.amount", "decision.chance")
    assert policy("[streams.s]\nlabel_rate = 0.02").label_rate == 0.02
    assert (policy("[streams.s]").weight, policy("[streams.s]").label_rate) == ("", "")
    assert policy("[streams.s]\nlabel_rate = 1").config == policy("[streams.s]").config


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # Segments.
        ('segments = "country"', "segments must be of type list"),
        ("segments = [1]", "segments must be a list of names"),
        ('segments = [""]', "printable name of 1 to 64 bytes"),
        ('segments = ["a\\n"]', "printable name of 1 to 64 bytes"),
        (f'segments = ["{"é" * 33}"]', "printable name of 1 to 64 bytes"),
        ('segments = ["a", "a"]', "segments must be different names"),
        (f"segments = {[str(n) for n in range(9)]}", "segments names 9, at most 8"),
        ('segments = ["a", "b"]\npairs = ["a"]', "a pair is two names"),
        ('segments = ["a", "b"]\npairs = [["a"]]', "a pair is two names"),
        ('segments = ["a", "b"]\npairs = [["a", "c"]]', "two different names out of segments, got ['a', 'c']"),
        ('segments = ["a", "b"]\npairs = [["a", "a"]]', "two different names out of segments"),
        ('segments = ["a", "b"]\npairs = [["a", "b"], ["b", "a"]]', "pairs names ['b', 'a'] twice"),
        ("segments_required = true", "segments_required needs segments"),
        # Labels, and how long rows are kept.
        *((f'{name} = "30 days"', f"{name}: '30 days' is not a duration") for name in ("ttl", "matures", "revisable")),
        ('ttl = "0d"', "ttl must be positive, got 0d"),
        ('matures = "45d"\nttl = "45d"', "ttl (45d) must be longer than matures (45d)"),
        ('matures = "50d"\nttl = "36h"', "ttl (36h) must be longer than matures (50d)"),
        ('ttl = "9d"\nrevisable = "8d"', "revisable (8d) must not be shorter than ttl (9d)"),
        ("silence = 0", "silence needs matures"),
        ('matures = "1d"\nsilence = "no"', "silence must be a label, got 'no'"),
        ('matures = "1d"\nsilence = true', "silence must be a label, got True"),
        ("calibrator = 'quantile'\nmatures = '1d'\nsilence = inf", "silence must be a finite number, got inf"),
        *(
            (f"alarms_since = {bad}", "a time after 1970 with its zone")
            for bad in ("2026-01-01", "1960-01-01T00:00:00Z")
        ),
        ("on_error = 'x'", "on_error must be one of none, raw, got 'x'"),
        ("interval = 0.4", "interval must be between .5 and .999, such as 0.9, got 0.4"),
        ("interval = 1", "interval must be between .5 and .999, such as 0.9, got 1"),
        ("reasons = true", "reasons need intervals: set interval, too"),
        ("calibrator = 'quantile'\nmodel_version = 'm'", "model_version: only of one probability"),
        ('unlabelled = "same"', "unlabelled must be one of unknown, alike, got 'same'"),
        ('learn = "maturity"', 'learn = "maturity" needs matures'),
        ('matures = "1d"\nlearn = "late"', "learn must be one of maturity, arrival"),
        # Calibrators, challengers, features.
        ('calibrator = "plat"', "unknown calibrator 'plat'; allowed: one of "),
        ('calibrator = "platt+minimax+platt+minimax+platt"', "or up to 4 of them as front+back"),
        ("calibrator = 1", "calibrator must be of type str"),
        (
            "options = { gird = 5 }",
            "has no option 'gird'; allowed: halflife (an integer from 0 to 1000000000), grid (an",
        ),
        ("options = { grid = 0 }", "grid must be an integer from 1 to 1000"),
        ("options = 5", "options must be of type dict"),
        ('shadow = "platt"', "shadow must be of type list"),
        ("shadow = [3]", "a challenger is the name of a calibrator, or a table that has one, got 3"),
        ("shadow = [{}]", "a challenger is the name of a calibrator, or a table that has one, got {}"),
        ('shadow = [{ calibrator = "platt", ttl = "3d" }]', "a challenger has no setting 'ttl'"),
        ("shadow = [{ calibrator = 3 }]", "calibrator must be of type str, got 3"),
        (f'shadow = ["{DEFAULT}"]', f"challenger {DEFAULT} already serves"),
        ("features = 65", "features must be between 0 and 64, got 65"),
        ("features = -1", "features must be between 0 and 64, got -1"),
        *(
            (f"features = {bad}", "a count or a list of different names")
            for bad in ("true", '"a"', '["a", "a"]', '["a", 1]')
        ),
        ("seed = 1.0", "seed must be of type int"),
        ("seed = true", "seed must be of type int"),
        *((f"seed = {bad}", "seed must be between 0 and 2**64 - 1") for bad in (-1, 2**64)),
        *((f"shards = {bad}", "shards must be between 1 and 1000") for bad in (0, 1001)),
        ('shards = "2"', "shards must be of type int"),
        # Weights, bands, points.
        ("label_rate = 0", "label_rate must be a chance above 0 and at most 1, or a path, got 0.0"),
        ("label_rate = 2", "label_rate must be a chance above 0 and at most 1"),
        ("label_rate = nan", "label_rate must be a number, got nan"),
        ("label_rate = true", "label_rate must be a number such as 0.02, or a path"),
        ("label_rate = '0.02'", "write a number without quotes"),
        ("weight = ''", 'got "": leave it out'),
        ("label_rate = 'a[0]'", 'label_rate must be a path of names such as "decision.chance"'),
        ("label_rate = 0.5\nmatures = '1d'\nsilence = 0", "label_rate and silence exclude each other"),
        ("weight = 5", "weight must be of type str"),
        ("weight = 'a[0]'", 'weight must be a path of names such as "amount"'),
        ("weight = 'amount'\ncalibrator = 'quantile'", "weight: only of one probability"),
        (
            "bands = { pass = 0, block = 0.3, review = 0.02 }",
            "review (0.02) stands behind block (0.3): order them from",
        ),
        ("bands = { a = 0, b = 0.3, c = 0.3 }", "c (0.3) stands behind b (0.3)"),
        ("bands = { review = 0.02, Review = 0.3 }", "'review' is used twice: give each band its own name"),
        ("bands = { review = '120%' }", "bands: review = 120%: a share must be above 0% and below 100%"),
        ("bands = { review = '0%' }", "review = 0%: a share must be above 0%"),
        ("bands = { review = '1%', block = '2%' }", "block (2%) stands behind review (1%): it counts all above"),
        ("bands = { review = '2%', block = 0.3 }", "review is a share and block a probability"),
        ("bands = { review = 0.02, block = '1%' }", "block is a share and review a probability"),
        ("bands = { review = 1.5 }", "review = 1.5: it must begin between 0 and 1"),
        ("bands = { review = -0.5 }", "it must begin between 0 and 1"),
        ("bands = { review = nan }", "review must be a number, got nan"),
        ("bands = { review = true }", "review must be a number, got True"),
        ("bands = { review = 'much' }", 'review must be a probability such as 0.02 or a share such as "2%"'),
        ("bands = { '' = 0.5 }", "a band has no name"),
        ('bands = { "a\\u0007" = 0.5 }', "printable text of at most 32"),
        ("bands = {}", "1 of them; 2 to 6 are allowed"),
        ("bands = { pass = 0 }", "1 of them; 2 to 6 are allowed"),
        ("bands = { a = 0.1, b = 0.2, c = 0.3, d = 0.4, e = 0.5, f = 0.6 }", "7 of them"),
        ("bands = 0.5", "bands must be of type dict"),
        ("bands = { a = 0.5 }\nhold = 'rank'", 'hold must be "volume"'),
        ("hold = 'volume'", 'hold = "volume" needs bands'),
        ("bands = { a = '5%' }\nhold = 'volume'", "shares keep their volume anyway"),
        (
            "calibrator = 'quantile'\nbands = { a = 0.5 }",
            "bands: only of one probability, and quantile serves quantiles",
        ),
        ("calibrator = 'multiclass'\npoints = { base = 0, odds = 1, double = 1 }", "points: only of one probability"),
        ("points = { base = 600, odds = 50 }", "points has no double: write points = {"),
        ("points = { base = 600, odds = 50, doble = 20 }", "points has no setting 'doble'"),
        ("points = { base = 600, odds = 0, double = 20 }", "odds must be above 0"),
        ("points = { base = 600, odds = 50, double = 0 }", "double must be within 10,000 of 0 and not 0"),
        ("points = { base = 1e9, odds = 50, double = 1 }", "base must be within 1,000,000 of 0"),
        ("bands = { a = 0.5 }\ncost_miss = 5", "cost_miss and cost_alert belong together"),
        ("bands = { a = 0.5 }\ncost_miss = -5\ncost_alert = 1", "belong together"),
        ("cost_miss = 5\ncost_alert = 1", "need bands: set bands, too"),
    ],
)
def test_what_a_stream_cannot_have_is_refused_with_place_and_remedy(text: str, said: str) -> None:
    message = refused(f"[streams.s]\n{text}")
    assert said in message
    assert message.startswith('streams."s": ')
