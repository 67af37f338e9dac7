"""What the pages answer, asked as a server asks them."""

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import orjson
import pytest

from agents import notices
from agents.status.number_format import percent
from agents.status.pages import CARDS, MOST, Pages
from agents.status.readings import POINTS, Readings
from state import kinds
from state.bands import Bands
from state.effects import Effects
from state.events import Event, Forecast, Outcome
from state.evidence import Evidence, band_of, issue, learn
from state.forecasts import Normal, Probs
from state.policies import Policies
from state.policy import Policy
from state.scoring.ages import DAY_MS, Ages
from state.scoring.band_counts import BandCounts
from state.scoring.course import Course
from state.scoring.distribution import Distribution
from state.scoring.history import History
from state.scoring.segment_pairs import SegmentPairScores, observe_segments
from state.scoring.segment_scores import SegmentScores
from state.scoring.weighted import Weighted
from state.segments import Dictionary
from state.served import Served
from streams.config.settings import Settings
from streams.faust.progress import Recovery
from streams.metrics.gauges import Gauges
from streams.metrics.mirror import ChangedRows, ChangeSource, Mirror, Overview
from streams.metrics.snapshot import PartitionSnapshot, by_stream
from tests.agents.status.rows import DEFAULT, folded, learnt, pages, readings, renamed
from tests.holding import hold, holding
from tests.state.histories import judged_at_once

pytestmark = pytest.mark.usefixtures("no_warm_up")

#: As records may name a stream: everything that means something to HTML, URLs, SVG or scripts.
HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'&amp;{{7*7}}`</svg></style>/../%2e?stream=#"
with judged_at_once():
    ONE, TWO = learnt(DEFAULT, ["churn", "fraud"], 400), learnt(DEFAULT, ["churn"], 100, seed=1)


class Shown(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def html(self) -> str:
        return self.body.decode()

    @property
    def text(self) -> str:
        return Tags(self.html).text


def get(application: Pages, path: str = "/", **query: str) -> Shown:
    status, headers, body = application(path, urlencode(query))
    return Shown(status, dict(headers), body)


def streams(application: Pages, **query: str) -> list[Any]:
    """Return the list of streams for programs."""
    found: list[Any] = get(application, "/api/streams", **query).json["streams"]
    return found


def told(application: Pages, stream: str = "churn") -> Any:
    """Return all that there is to say of a stream, for programs."""
    return get(application, f"/api/streams/{stream}").json


def of_churn(policy: Policy, rows: dict[bytes, bytes]) -> Pages:
    """Return the pages of a worker that holds rows of the stream churn beside those of its scores."""
    held = PartitionSnapshot(ONE.fence, by_stream({**ONE.rows["churn"], **rows}))
    return pages(held, policies=Policies([("churn", policy)]))


def resolved(policies: Policies, events: list[tuple[Any, tuple[float, ...], float]]) -> PartitionSnapshot:
    """Return what is held of a partition that has resolved events of the stream s: forecast, features, outcome."""
    made: list[Event] = []
    for i, (raw, x, y) in enumerate(events):
        made += [Forecast(i, None, f"e{i}", "s", raw, x, 1 + i), Outcome(i, None, f"e{i}", y, 2 + i)]
    return folded(policies, made)


class Tags(HTMLParser):
    """Collects tags with their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def tags(text: str, name: str) -> list[dict[str, str | None]]:
    return [attributes for tag, attributes in Tags(text).found if tag == name]


# -- for programs --------------------------------------------------------------------------------------------------


def test_the_list_of_streams_adds_partitions_up() -> None:
    answer = get(pages(ONE, TWO), "/api/streams")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    listed = {each["stream"]: each for each in answer.json["streams"]}
    assert {name: each["resolved"] for name, each in listed.items()} == {"churn": 500, "fraud": 400}
    held = [kinds.history(each.row(kinds.SCORES, "churn") or b"", None).total for each in (ONE, TWO)]
    assert listed["churn"]["calibrated"]["ece"] == (held[0] + held[1]).error("calibrated")
    assert listed["churn"]["regret"]["brier"] == (held[0] + held[1]).regret("brier")
    assert 0 < listed["churn"]["error"] < listed["churn"]["bound"]
    worker = answer.json["worker"]
    assert worker["pending"] == 2
    assert [each["partition"] for each in worker["partitions"]] == [0, 1]
    assert re.fullmatch("[0-9a-f]{8}", worker["config"])


def test_the_page_of_a_worker_that_does_not_answer_says_so_and_not_what_was_before() -> None:
    known = readings(ONE)
    assert "not ready" not in get(Pages(known)).html

    def ask(_: bool) -> Iterator[ChangedRows | Overview]:  # noqa: FBT001 - as a mirror asks
        raise TimeoutError

    known.mirror._ask, known.mirror._until = ask, 0.0
    answer = get(Pages(known))
    assert answer.status == 503
    assert "not ready: it does not answer" in answer.html


def test_a_stream_tells_the_map_that_each_partitions_calibrator_serves() -> None:
    answer = told(pages(ONE, TWO))
    policy = DEFAULT.of("churn")
    assert policy is not None
    assert [(each["partition"], each["config"]) for each in answer["maps"]] == [(0, policy.config), (1, policy.config)]
    for each, held in zip(answer["maps"], (ONE, TWO), strict=True):
        served = kinds.CALIBRATOR.decode(held.row(kinds.CALIBRATOR, "churn", policy.config) or b"", "churn").calibrator
        assert each["raw"] == list(POINTS)
        assert each["calibrated"] == [served.predict(p, (), b"any").p for p in POINTS]
    assert [each["version"] for each in answer["calibrators"]] == [400, 100]
    text = get(pages(ONE, TWO), stream="churn").text
    for each in answer["served"]:
        assert each["least"] < each["served"] < each["most"]
        assert percent(each["served"]) in text
        assert f"{percent(each['least'])} to {percent(each['most'])}" in text
    assert "Each partition learns by itself" in text
    assert "Each partition learns by itself" not in get(pages(ONE), stream="churn").text


def test_a_page_shows_what_was_drawn_how_it_ranks_and_what_labels_ask_for() -> None:
    known, ages = History(), Ages()
    for t in range(500):
        known.observe(t / 500, t / 1000, float(t % 5 == 0), (t * 7 % 500) / 1000)
    for t in range(400):
        ages.observe(t * DAY_MS // 30, 1)
        ages.expire()
    held = holding(
        {kinds.SCORES.key("fraud"): kinds.SCORES.encode(known), kinds.AGES.key("fraud"): kinds.AGES.encode(ages)}
    )
    application = pages(held, policies=DEFAULT)
    answer = told(application, "fraud")
    assert answer["draw"]["auc"] == pytest.approx(known.lately.ranking("draw").auc().value)
    assert answer["ages"]["outcomes"]["1"]["n"] == 400
    page = get(application, stream="fraud").text
    assert "misclassified at .5" in page
    for words in ("draw", "AUC", "Gini", "recall, top 2 %", "precision, top 0.5 %", "mean off by", "recent alarm"):
        assert words in page
    assert "50% of the forecasts expire" in page
    assert 'matures = "' in page
    assert "Labels:" in get(application).text
    assert streams(application)[0]["findings"] == ["silence"]


def test_a_page_shows_that_raw_forecasts_have_shifted_before_any_outcome_has_come() -> None:
    found = Distribution()
    for n in range(21 * 480):
        found.observe(0.01 + 0.001 * (n % 7) if n < 19 * 480 else 0.5, n * DAY_MS // 480)
    held = holding({kinds.DISTRIBUTION.key("fraud"): kinds.DISTRIBUTION.encode(found)})
    application = pages(held, policies=DEFAULT)
    assert told(application, "fraud")["forecasts"]["shifted"]
    page = get(application, stream="fraud").text
    for words in ("Raw forecasts have shifted:", "weeks before", "shift (PSI)"):
        assert words in page
    assert "Raw forecasts have shifted:" in get(application).text
    assert streams(application)[0]["shift"] == pytest.approx(found.shift())


@pytest.mark.parametrize(
    ("calibrator", "options", "raw", "y"),
    [
        ("quantile", {"levels": (0.1, 0.5, 0.9)}, Normal(5.0, 2.0), 6.0),
        ("multiclass", {"classes": 3}, Probs((0.2, 0.3, 0.5)), 2.0),
    ],
)
def test_streams_of_classes_and_numbers_are_shown_without_a_map(
    calibrator: str, options: dict[str, Any], raw: Any, y: float
) -> None:
    policy = Policy(calibrator, options)
    policies = Policies(default=policy)
    application = pages(resolved(policies, [(raw, (), y)] * 50), policies=policies)
    (listed,) = streams(application)
    assert listed["resolved"] == 50
    assert told(application, "s")["maps"] == []
    ((_, short),) = listed["vectors"].items()
    assert short["raw"]["alarm"]["log10"] > 0
    assert ("crps" in short["calibrated"]) == (calibrator == "quantile")
    assert ("top_label_ece" in short["calibrated"]) == (calibrator == "multiclass")
    assert short["difference"]
    assert " 50 outcomes" in get(application).html
    one = get(application, stream="s").html
    # Quantiles have a diagram, of their coverage; classes have figures only.
    assert one.count('class="plot"') == (calibrator == "quantile")
    assert ("at or below each quantile" in one) == (calibrator == "quantile")
    assert one.count("sounds") >= 1, "one outcome again and again is not what was forecast"
    assert ("pinball loss, served − raw" in one) == (calibrator == "quantile")
    assert ("log loss, served − raw" in one) == (calibrator == "multiclass")
    assert ("log loss of classes is of normalised" in one) == (calibrator == "multiclass")


def test_biases_stand_beside_their_bounds_and_features_are_at_zero_in_the_map() -> None:
    policies = Policies(default=Policy("calibrated_regression", {}, features=("age", "<b>")))
    application = pages(resolved(policies, [(0.5, (0.1, i % 2), float(i % 2)) for i in range(30)]), policies=policies)
    one = get(application, stream="s").html
    assert "Bias along features" in one
    assert '<td class="name">age</td>' in one
    assert "&lt;b&gt;" in one
    described = told(application, "s")
    assert {each["name"] for each in described["biases"]} >= {"age", "<b>", "constant"}
    assert all(0 <= p <= 1 for p in described["maps"][0]["calibrated"])


def test_streams_are_found_and_paged() -> None:
    many = renamed(ONE, "churn", [f"tenant-{i:03}" for i in range(50)])
    many.rows.update(renamed(ONE, "fraud", ["Fraud"]).rows)
    application = pages(many, TWO)

    def names(**query: str) -> list[str]:
        return [each["stream"] for each in streams(application, **query)]

    assert names(q="FRAUD") == ["Fraud"]
    assert names(q="tenant-04", size="3", page="2") == ["tenant-043", "tenant-044", "tenant-045"]
    assert names(q="nobody") == []
    assert names(page="9") == []
    assert len(names(size="1000")) == 52


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("/api/streams/nobody", {}, 404),
        ("/api/other", {}, 404),
        ("/favicon.ico", {}, 404),
        ("/../../etc/passwd", {}, 404),
        ("/", {"stream": "nobody"}, 404),
        ("/", {"page": "0"}, 400),
        ("/", {"page": "-1"}, 400),
        ("/", {"page": "1e9"}, 400),
        ("/api/streams", {"size": str(MOST + 1)}, 400),
        ("/api/streams", {"page": "9" * 4000}, 400),
        ("/api/streams", {"page": "²"}, 400),
    ],
)
def test_what_cannot_be_answered_is_refused_in_kind(path: str, query: dict[str, str], status: int) -> None:
    answer = get(pages(ONE), path, **query)
    assert answer.status == status
    if path.startswith("/api"):
        assert answer.json["error"]
    else:
        assert answer.html.startswith("<!doctype html>")


def test_pages_say_the_truth_of_a_stream_that_has_no_metrics() -> None:
    known = readings(ONE)
    assert told(Pages(known), "nobody")["error"] == "this worker holds no state of stream 'nobody'"
    assert "streams without metrics" not in get(Pages(known)).html
    crowded = Gauges(1, "0", lambda: ())
    crowded.assigned(0, renamed(ONE, "churn", ["s0", "s1"]))
    application = Pages(replace(known, mirror=Mirror(ChangeSource(crowded.exposition, crowded))))
    hidden = next(iter(crowded.slots.hidden_streams))
    said = told(application, hidden)["error"]
    assert f"holds state of stream '{hidden}', which has no metrics" in said
    assert "TRUEUP_METRICS_STREAMS" in said
    unsure = told(application, "nobody")["error"]
    assert "it holds no state of it, or the stream is one of those that have no metrics" in unsure
    assert ("streams without metrics", "1") in facts(get(application).html)


def facts(text: str) -> set[tuple[str, str]]:
    return set(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", text))


def test_a_defect_is_said_and_logged_and_does_not_show_its_insides(caplog: pytest.LogCaptureFixture) -> None:
    broken = holding({kinds.SCORES.key("s"): b"no row"})
    answer = get(pages(broken), "/api/streams/s")
    assert answer.status == 500
    assert "the worker's log says why" in answer.json["error"]
    assert "CorruptFrame" in caplog.text


# -- for people ----------------------------------------------------------------------------------------------------


def test_without_any_stream_the_page_says_so() -> None:
    application = Pages(readings(ready=False))
    empty = get(application).html
    for words in ("No stream yet", "<code>forecasts</code>", "<code>outcomes</code>", "broker send forecasts"):
        assert words in empty
    assert "not ready: no partition is served" in empty
    assert streams(application) == []


def test_the_page_names_dead_letters_of_every_stage_with_the_command_for_more(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    for stage in ("worker", "intake"):
        met = notices.Notices(notices.path(settings, stage))
        for offset in range(1200):
            met.dead(f"{stage}<s>", 2, offset, "not_json")
        met.tell()
    text = get(Pages(readings(settings=settings))).html
    for stage in ("worker", "intake"):
        assert f"dead letters of {stage}&lt;s&gt;, not_json: 1,200. " in text
        assert f"trueup letters --topic {stage}&lt;s&gt; --reason not_json" in text


def test_the_page_shows_how_far_restoring_is() -> None:
    text = get(Pages(readings(ready=False, recovery=Recovery(250, 1000)))).html
    assert "250 of 1,000 changelog records left to restore" in text
    assert tags(text, "progress") == [{"max": "1000", "value": "750"}]


def test_a_stream_is_told_in_one_sentence_with_its_state() -> None:
    text = get(pages(learnt(DEFAULT, ["churn", "fraud"], 3000))).text
    said = (
        r"Your model says [\d.]+\xa0% on average; [\d.]+\xa0% came true. "
        r"trueup serves [\d.]+\xa0%, right to ±[\d.]+ points since 1 Jan"
    )
    assert len(re.findall(said, text)) == 2
    assert len(re.findall(r"The highest 2\xa0% of the scores catch [\d.]+\xa0% of what came true", text)) == 2
    one = get(pages(ONE, TWO), stream="churn").html
    for words in (
        "What is served for what is forecast",
        "Reliability",
        "last 7 days",
        "500 outcomes",
        "regret, log loss",
    ):
        assert words in one


@pytest.mark.parametrize(
    ("policy", "n", "says"),
    [
        (
            Policy(),
            3000,
            r"p is at most 0\.\d{4} from calibrated scores; guaranteed beforehand, whoever sees p: 0\.\d{4}",
        ),
        (Policy(), 30, "nothing below 1 is guaranteed beforehand: too few outcomes yet"),
        (Policy("prudent"), 400, "no bound below 1 is proven: too few outcomes yet, or too many others come between"),
    ],
)
def test_a_page_says_what_is_guaranteed_and_why_nothing_is(policy: Policy, n: int, says: str) -> None:
    assert re.search(says, get(pages(learnt(Policies(default=policy), ["churn"], n)), stream="churn").text)


def test_streams_that_need_somebody_come_first() -> None:
    """A stream whose labels stopped stands before one that is right, whatever their names are."""
    held = PartitionSnapshot(replace(ONE.fence, stream_time=5 * DAY_MS))
    late = Course()
    for name, course in (("a", kinds.COURSE.decode(ONE.row(kinds.COURSE, "churn") or b"")), ("z", late)):
        course.issue(5 * DAY_MS)
        course.label_ms = 5 * DAY_MS if name == "a" else DAY_MS // 2
        hold(held, kinds.COURSE, kinds.COURSE.encode(course), name)
        hold(held, kinds.SCORES, ONE.row(kinds.SCORES, "churn") or b"", name)
    ahead = PartitionSnapshot(replace(ONE.fence, stream_time=30 * DAY_MS))  # as while a backlog is read
    listed = streams(pages(held, ahead))
    assert [(each["stream"], each["standing"]["state"]) for each in listed] == [("z", "no labels"), ("a", "right")]


def test_a_stream_without_an_outcome_says_so() -> None:
    fresh = kinds.CALIBRATOR.encode(Served.fresh(Policy().recipe, "churn"))
    waiting = holding({kinds.CALIBRATOR.key("churn", Policy().config): fresh})
    for query in ({}, {"stream": "churn"}):
        assert "Warm-up. Raw scores are served. No label is known yet." in get(pages(waiting), **query).text


def test_a_thousand_streams_are_paged() -> None:
    application = pages(renamed(ONE, "churn", [f"s{i:04}" for i in range(1000)]))
    first, last = get(application).html, get(application, page="42").html
    assert len([each for each in tags(first, "li") if each.get("class") == "card"]) == CARDS
    assert "1 to 24 of 1,000 streams" in first
    assert "985 to 1,000 of 1,000 streams" in last
    assert "985 to 1,000" in get(application, page="99999").text, "a page too far is the last"
    assert "s0000" in first
    assert "s0999" in last


def test_the_name_of_a_stream_is_text_wherever_it_stands() -> None:
    application = pages(renamed(ONE, "churn", [HOSTILE]))
    assert told(application, HOSTILE)["stream"] == HOSTILE
    clean = get(pages(renamed(ONE, "churn", ["plain"]))).html
    for query in ({}, {"stream": HOSTILE}, {"q": HOSTILE[:20]}, {"stream": HOSTILE + "!"}):
        found = Tags(get(application, **query).html)
        assert HOSTILE[:20] in found.text
        assert [tag for tag, _ in found.found].count("script") == 1
        assert not [tag for tag, _ in found.found if tag in {"img", "iframe", "object"}]
        assert not [name for _, attributes in found.found for name in attributes if name.startswith("on")]
        assert not [attributes for _, attributes in found.found if "style" in attributes]
    listed = get(application).html
    assert [tag for tag, _ in Tags(listed).found] == [tag for tag, _ in Tags(clean).found]
    (link,) = [each["href"] for each in tags(listed, "a") if "stream=" in (each["href"] or "")]
    assert link == "/?stream=" + quote(HOSTILE, safe="").replace("%20", "+")


def test_a_browser_may_load_and_run_nothing_else() -> None:
    for path in ("/", "/api/streams", "/nowhere"):
        headers = get(pages(ONE), path).headers
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
    text = get(pages(ONE)).html
    outside = re.findall(r'(?:src|href)="(?!/|data:image/svg)', text)
    assert outside == []


# -- the figures ---------------------------------------------------------------------------------------------------


def unhurt(application: Pages) -> str:
    """Return the text of the page of churn, which names the hostile segment and holds nothing that it brings."""
    page = get(application, stream="churn")
    assert f"country = {HOSTILE[:60]}" in page.text
    assert not [each for each in tags(page.html, "img") if each.get("src") == "x"]
    return page.text


def test_a_page_shows_segments_the_worst_first_whatever_they_are_called() -> None:
    policy = Policy("identity", segments=("country",))
    dictionary, scores = Dictionary(policy.segments), dict[int, SegmentScores]()
    for value, n, off in (("DE", 3000, 0.0), (HOSTILE[:60], 2000, 0.3), ("FR", 1000, 0.0)):
        (slot,) = dictionary.groups((value,))
        of = scores[slot] = SegmentScores()
        for t in range(n):
            of.observe(0.5, 0.5, float(t % 100 < 100 * (0.5 - off)))
    segments = {
        kinds.SEGMENT.key("churn", policy.layout, slot): kinds.SEGMENT.encode(each) for slot, each in scores.items()
    }
    segments[kinds.NAMES.key("churn", policy.layout)] = kinds.NAMES.encode(dictionary)
    application = of_churn(policy, segments)
    described = told(application)["segments"]
    assert (described["scored"], described["off"]) == (3, 1)
    assert [each["value"] for each in described["worst"]] == [HOSTILE[:60], "DE", "FR"]
    text = unhurt(application)
    assert "1 of 3 segments are off." in text
    assert "Lately 1 of 3 segments are off." in text
    card = get(application).text
    assert f"1 of 3 are off. Worst is country = {HOSTILE[:60]}: 0.500 served, 0.200 observed." in card
    said = f"off in 1 of 3 segments. Worst is country = {HOSTILE[:60]}: 0.5 served, 0.2 came true in 2,000 events."
    assert said in card


def test_a_page_shows_bands_raw_beside_served_and_what_they_are_worth() -> None:
    bands = Bands(("pass", HOSTILE[:30], "block"), (0.0, 0.02, 0.3))
    policy = Policy("identity", bands=bands, cost_miss=30.0, cost_alert=8.0, segments=("country",))
    dictionary, counts = Dictionary(policy.segments), BandCounts(3)
    (slot,) = dictionary.groups((HOSTILE[:60],))
    for day in range(1, 12):
        for n in range(1000):
            counts.issue(2 * (n < 100), 1 + (n < (60 if day == 10 else 20)), day)
            counts.resolve(0, 1 + (n < 20), 1, int(n % 100 == 0), day)
    place = "churn", bands.layout
    rows = {
        kinds.BAND_COUNTS.key(*place, *kinds.WHOLE): kinds.BAND_COUNTS.encode(counts),
        kinds.BAND_COUNTS.key(*place, policy.layout, slot): kinds.BAND_COUNTS.encode(counts),
        kinds.NAMES.key("churn", policy.layout): kinds.NAMES.encode(dictionary),
    }
    application = of_churn(policy, rows)
    described = told(application)["bands"]
    block = described["bands"][2]
    assert (block["low"], block["moved"]) == (0.3, 3.0)
    assert (block["raw"]["forecasts"], block["calibrated"]["forecasts"]) == (1100, 260)
    assert (block["calibrated"]["precision"], block["calibrated"]["recall"]) == (0.05, 0.1)
    assert (block["calibrated"]["false_alarms"], block["calibrated"]["cost"]) == (19.0, 99 * 30.0 + 220 * 8.0)
    assert [each["value"] for each in described["segments"]] == [HOSTILE[:60]]
    last = described["days"][-2]
    assert (last["day"], last["forecasts"], last["bands"][2]["calibrated"]["share"]) == (10, 1000, 0.06)
    assert last["bands"][2]["calibrated"]["cost"] == 9 * 30.0 + 20 * 8.0
    text = unhurt(application)
    assert "Bands by day" in text
    assert "11 Jan 1970" in text
    assert "Band block: on the last whole day its share was 3 times that of the days before" in text
    assert HOSTILE[:30] in text


def test_a_page_shows_the_interval_of_what_is_served_and_whether_it_is_frozen() -> None:
    assert DEFAULT.default is not None
    policy, seen = replace(DEFAULT.default, interval=0.9, frozen=True), Evidence()
    for n in range(2000):
        issue(band_of(0.3), 0.3, seen, [])
        learn(band_of(0.3), float(n % 10 < 3), seen, [])
    application = of_churn(
        policy, {kinds.EVIDENCE.key("churn", policy.config, *kinds.WHOLE): kinds.EVIDENCE.encode(seen)}
    )
    described = told(application)
    at = {each["raw"]: each for each in described["served"]}
    assert all(each["low"] <= each["served"] <= each["high"] for each in at.values())
    assert at[0.3]["high"] - at[0.3]["low"] < at[0.1]["high"] - at[0.1]["low"], "no outcome of .1 has come"
    assert described["frozen"] is True
    (one,) = described["maps"]
    assert len(one["low"]) == len(one["high"]) == len(one["raw"])
    text = get(application, stream="churn").text
    assert "the map stays as it is" in text
    assert "interval" in text
    assert f"{percent(at[0.3]['low'])} to {percent(at[0.3]['high'])}" in text
    bare = told(of_churn(DEFAULT.default, {}))
    assert bare["served"][0]["low"] is None
    assert "frozen" not in bare


def test_a_page_says_how_many_events_taught_nothing_since_the_worker_began() -> None:
    gauges = Gauges(10, "1.2.3", lambda: ())
    gauges.assigned(0, ONE)
    gauges.applied(0, Effects(untaught={"churn": 1234}), ONE.fence)
    mirror = Mirror(ChangeSource(gauges.exposition, gauges))
    application = Pages(Readings(Settings(policies=DEFAULT), mirror, "1.2.3"))
    assert told(application)["untaught"] == 1234
    assert "1,234 events since this worker began" in get(application, stream="churn").text
    assert "untaught" not in told(application, "fraud")


def test_a_page_shows_what_was_expected_and_what_came_true_by_weight() -> None:
    policy = Policy("identity", weight="amount", label_rate=0.5, segments=("country",))
    dictionary, whole, part = Dictionary(policy.segments), Weighted(), Weighted()
    (slot,) = dictionary.groups((HOSTILE[:60],))
    for n in range(100):
        whole.observe(0.4, 0.02, float(n == 0), 100.0)
        if n < 10:
            part.observe(0.4, 0.02, float(n == 0), 100.0)
    rows = {
        kinds.WEIGHTED.key("churn", *kinds.WHOLE): kinds.WEIGHTED.encode(whole),
        kinds.WEIGHTED.key("churn", policy.layout, slot): kinds.WEIGHTED.encode(part),
        kinds.NAMES.key("churn", policy.layout): kinds.NAMES.encode(dictionary),
    }
    application = of_churn(policy, rows)
    described = told(application)["weighted"]
    assert (described["by"], described["label_rate"], described["events"]) == ("amount", 0.5, 100)
    assert (described["happened"], round(described["calibrated"]["expected"])) == (100.0, 200)
    assert [(each["value"], each["happened"]) for each in described["segments"]] == [(HOSTILE[:60], 100.0)]
    text = unhurt(application)
    assert "By amount, each label by its chance" in text
    assert "+100" in text


def test_a_page_shows_which_class_of_a_segment_is_off_lately() -> None:
    policy = Policy("multiclass", {"classes": 3}, segments=("country",))
    dictionary, served = Dictionary(policy.segments), Probs((0.5, 0.3, 0.2))
    segments = {}
    for value, classes in (("DE", "0000011122"), ("FR", "0000011222")):
        (slot,), of = dictionary.groups((value,)), SegmentPairScores()
        for t in range(2000):
            observe_segments([of], served, served, float(classes[t % 10]), t // 100)
        segments[kinds.SEGMENT.key("churn", policy.scored, slot)] = kinds.SEGMENT.encode(of)
    segments[kinds.NAMES.key("churn", policy.layout)] = kinds.NAMES.encode(dictionary)
    application = of_churn(policy, segments)
    described = told(application)["segments"]
    assert described["recently_off"] == 1
    assert (described["recent"][0]["class"], described["recent"][0]["level"]) == (2, None)
    page = get(application, stream="churn").text
    assert "Lately 1 of 2 segments are off." in page
    assert "FR, class 2" in page
    card = get(application).text
    assert "Worst is country = FR, class 2: 0.2 served, 0.3 came true in 2,000 events." in card
