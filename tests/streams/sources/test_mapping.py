"""A mapping gives the fields of trueup's records from records of any shape; what cannot be read says why."""

import tomllib
from typing import Any

import orjson
import pytest

from streams.sources import config, modes
from streams.sources.mapping import Mapping
from streams.sources.modes import Source
from streams.sources.refusal import PASSED, Refusal

NOW = 1_700_000_000_000
FORECAST = 'topic = "scores"\nrole = "forecast"\nevent_id = "id"\nstream = { constant = "s" }\n'
OUTCOME = 'topic = "labels"\nrole = "outcome"\nevent_id = "id"\n'


def source(text: str) -> Source:
    (found,) = config.parse(tomllib.loads(f"[sources.a]\n{text}")["sources"])
    return found


def refused(text: str) -> str:
    with pytest.raises(ValueError, match=r"^sources\.a: ") as caught:
        source(text)
    return str(caught.value)


def read(text: str, record: Any, key: bytes | None = b"k", headers: Any = (), ts: int = NOW) -> dict[str, Any]:
    value = record if isinstance(record, bytes) else orjson.dumps(record)
    found = Mapping(source(text)).read(value, key, headers, "scores", ts)
    assert isinstance(found, dict), found
    return found


def why(text: str, record: Any, **given: Any) -> Refusal:
    value = record if isinstance(record, bytes | None) else orjson.dumps(record)
    found = Mapping(source(text)).read(value, given.get("key"), given.get("headers", ()), "scores", NOW)
    assert isinstance(found, Refusal), found
    return found


def p(spec: str, value: Any) -> Any:
    return read(f"{FORECAST}p = {spec}", {"id": "a", "v": value}).get("p")


def ts(spec: str, value: Any) -> Any:
    return read(f'{FORECAST}p = "v"\nts = {spec}', {"id": "a", "v": 0.5, "t": value})["ts"]


def y(spec: str, record: dict[str, Any]) -> Any:
    return read(f"{OUTCOME}y = {spec}", {"id": "a", **record}).get("y")


def test_a_risk_engine_s_scores_and_chargebacks() -> None:
    scores = """
        topic = "scores.v3"
        role = "forecast"
        event_id = "transaction.id"
        stream = "{model.name}-{country}"
        p = { path = "riskScore", scale = [0, 1000] }
        ts = "scoredAt"
        segments = { country = "country", card = "cards[0].brand" }
        entity = "account.number"
        model_version = "model.version"
        [sources.a.x]
        amount = { path = "amount", range = [0, 5000] }
        channel = { path = "channel", categories = ["web", "app"] }
    """
    record = {
        "transaction": {"id": 7},
        "model": {"name": "m", "version": 3},
        "country": "DE",
        "cards": [{"brand": "visa"}],
        "account": {"number": 4711},
        "riskScore": 310,
        "scoredAt": "2026-01-01T00:00:00.123456789Z",
        "amount": 6000,
        "channel": "web",
    }
    assert read(scores, record) == {
        "event_id": "7",
        "stream": "m-DE",
        "p": 0.31,
        "ts": 1_767_225_600_123,
        "segments": {"country": "DE", "card": "visa"},
        "entity": "4711",
        "model_version": "3",
        "x": {"amount": 1.0, "channel=web": 1.0, "channel=app": 0.0},
    }
    labels = OUTCOME.replace('"id"', '"txn"') + 'y = { path = "status", labels = { lost = 1, won = 0, open = "skip" } }'
    assert read(labels, {"txn": "7", "status": "lost"}) == {"event_id": "7", "y": 1}
    assert why(labels, {"txn": "7", "status": "open"}).passed
    assert why(labels, {"txn": "7", "status": "new"}).reason == "label"
    assert "lost, won, open" in why(labels, {"txn": "7"}).why


def test_references_reach_value_key_headers_topic_and_timestamp() -> None:
    table = """
        topic = "scores"
        role = "forecast"
        key_format = "json"
        event_id = "@key.id"
        stream = "{@topic}-{@header.land}-{@header.none}"
        p = '"a.b"."c d"[1]'
        ts = "@timestamp"
        segments = { "land" = "@header.land", "no" = "@header.none" }
    """
    headers = [("land", b"AT"), ("land", b"DE"), ("none", None)]
    found = read(table, {"a.b": {"c d": [0, 0.5]}}, key=b'{"id": 5}', headers=headers)
    assert found == {"event_id": "5", "p": 0.5, "ts": NOW, "segments": {"land": "DE"}}, "a part of stream is missing"
    by_key = 'topic = "labels"\nrole = "outcome"\ny = "y"\nevent_id = '
    assert read(f'{by_key}"@key"', {"y": 1})["event_id"] == "k"
    assert "key_format" in refused(f'{by_key}"@key.a"')


@pytest.mark.parametrize(
    "path", ["", ".", "a.", "a..b", "[0]", "a[x]", "a b[", 'a."b', "@nothing", "@key.", "{a", "a}", "{}", "a{b"]
)
def test_what_is_no_reference_is_refused_at_the_start(path: str) -> None:
    assert refused(f"{OUTCOME}y = '{path}'").startswith("sources.a: y: ")


def test_the_first_of_several_references_that_is_there_counts() -> None:
    table = f'{OUTCOME}y = "y"\nts = {{ path = ["decided", "opened", "@timestamp"], unit = "s" }}'
    assert read(table, {"id": 1, "y": 1, "opened": 5})["ts"] == 5000
    assert read(table, {"id": 1, "y": 1, "opened": 5, "decided": 6.5})["ts"] == 6500
    assert read(table, {"id": 1, "y": 1})["ts"] == NOW


@pytest.mark.parametrize(
    ("spec", "value", "expected"),
    [
        ('"v"', 0.25, 0.25),
        ('"v"', "0.25", 0.25),
        ('{ path = "v", scale = "percent" }', 25, 0.25),
        ('{ path = "v", scale = [0, 1000] }', 250, 0.25),
        ('{ path = "v", scale = [1000, 0] }', 250, 0.75),
        ('{ path = "v", scale = [-1, 1] }', 0, 0.5),
        ('{ path = "v", scale = "log-odds" }', 0, 0.5),
        ('{ path = "v", scale = "log-odds" }', -1e9, 0.0),
        ('{ path = "v", scale = "log-odds" }', 1e9, 1.0),
        ('{ path = "v", scale = "percent" }', 101, 1.01),  # the decoder refuses it
        ('{ path = "w", default = 0.5 }', 1, 0.5),
        ('"w"', 1, None),
    ],
)
def test_scores_of_every_scale_become_probabilities(spec: str, value: Any, expected: float | None) -> None:
    assert p(spec, value) == (expected if expected is None else pytest.approx(expected, abs=1e-15))


@pytest.mark.parametrize(
    ("spec", "value", "unit"),
    [
        ('"t"', str(NOW), "ms"),
        ('"t"', str(NOW // 1000), "s"),
        ('"t"', NOW * 1000, "us"),
        ('"t"', NOW * 1_000_000, "ns"),
        ('{ path = "t", unit = "s" }', NOW, "ms"),
        ('{ path = "t", format = "%d.%m.%Y" }', str(NOW), "ms"),
        ('"t"', "soon", None),
        ('"t"', 1e300, None),
    ],
)
def test_a_number_that_is_no_time_as_it_is_names_the_unit_in_which_it_is_one(
    spec: str, value: Any, unit: str | None
) -> None:
    refused = why(f'{OUTCOME}y = "y"\nts = {spec}', orjson.dumps({"id": 1, "y": 1, "t": value}))
    assert refused.reason == "timestamp"
    assert refused.why.endswith(f'set unit = "{unit}" for ts' if unit else "from 1970 to 9999")


@pytest.mark.parametrize(
    ("spec", "value", "expected"),
    [
        ('"t"', NOW, NOW),
        ('{ path = "t", unit = "s" }', 1_700_000_000, NOW),
        ('{ path = "t", unit = "s" }', 1_700_000_000.25, NOW + 250),
        ('{ path = "t", unit = "s" }', "1700000000", NOW),
        ('{ path = "t", unit = "us" }', NOW * 1000, NOW),
        ('{ path = "t", unit = "µs" }', NOW * 1000, NOW),
        ('{ path = "t", unit = "ns" }', NOW * 1_000_000, NOW),
        ('"t"', "2023-11-14T22:13:20Z", NOW),
        ('"t"', "2023-11-14 22:13:20", NOW),
        ('"t"', "2023-11-14T23:13:20.5+01:00", NOW + 500),
        ('{ path = "t", zone = "Europe/Berlin" }', "2023-11-14T23:13:20", NOW),
        ('{ path = "t", format = "%d.%m.%Y %H:%M:%S" }', "14.11.2023 22:13:20", NOW),
        ('"t"', "2023-11-14", 1_699_920_000_000),
    ],
)
def test_times_of_every_usual_kind_become_milliseconds(spec: str, value: Any, expected: int) -> None:
    assert ts(spec, value) == expected


@pytest.mark.parametrize("value", [None, True, "", "soon", [], {}, 1e400, "17000000000", -1, 2**60])
def test_what_is_no_time_is_refused_and_not_replaced_by_another(value: Any) -> None:
    record = orjson.dumps({"id": "a", "v": 0.5, "t": value})
    assert why(f'{FORECAST}p = "v"\nts = "t"', record).reason == "timestamp"


def test_labels_are_numbers_truth_values_or_what_a_table_says() -> None:
    assert [y('"v"', {"v": value}) for value in (0, 1, True, False, 2.5, "1", None)] == [0, 1, 1, 0, 2.5, 1, None]
    table = '{ path = "v", labels = { true = 1, 0 = 0, "2.5" = 0, null = 1, "*" = 0 } }'
    assert [y(table, {"v": value}) for value in (True, 0, 2.5, None, "other")] == [1, 0, 0, 1, 0]
    assert y("{ constant = 1 }", {}) == 1
    assert why(f'{OUTCOME}y = "v"', {"id": 1, "v": "lost"}).reason == "label"
    assert (
        why(f'{OUTCOME}y = {{ path = "v", labels = {{ a = 1, "*" = "skip" }} }}', {"id": 1, "v": []}).reason == PASSED
    )


def test_when_takes_the_records_for_which_all_of_it_holds() -> None:
    table = f"""{OUTCOME}y = "y"
        [sources.a.when]
        type = "label"
        "a.b" = [1, 2]
        c = {{ not = "x" }}
        d = {{ exists = true, min = 3, max = 5 }}
    """
    fits = {"id": 1, "y": 1, "type": "label", "a": {"b": 2}, "c": "z", "d": 4}
    assert read(table, fits)["y"] == 1
    for change in (
        {"type": "score"},
        {"a": {"b": True}},
        {"a": 1},
        {"c": "x"},
        {"d": None},
        {"d": 2},
        {"d": 6},
        {"d": "4"},
    ):
        assert why(table, fits | change).passed, change


def test_forecasts_of_classes_quantiles_and_laws() -> None:
    record = {"id": 1, "a": 20, "b": 80, "all": [0.2, 0.8], "m": 3, "s": "0.5", "q": {"lo": 1, "hi": 2}}
    base = FORECAST
    assert read(f'{base}probs = {{ each = ["a", "b"], scale = "percent" }}', record)["probs"] == [0.2, 0.8]
    assert read(f'{base}probs = "all"', record)["probs"] == [0.2, 0.8]
    assert read(f'{base}normal = {{ mean = "m", std = "s" }}', record)["normal"] == {"mean": 3, "std": 0.5}
    quantiles = read(f'{base}quantiles = {{ levels = [0.1, 0.9], values = ["q.lo", "q.hi"] }}', record)["quantiles"]
    assert quantiles == {"levels": [0.1, 0.9], "values": [1, 2]}
    assert why(f'{base}probs = "m"', record).reason == "probs"


def test_a_higher_precedence_makes_a_higher_revision_and_later_ones_of_a_source_replace_earlier() -> None:
    def revision(precedence: int, ts: int, own: int | None = None) -> int:
        table = f'{OUTCOME}y = "y"\nts = "t"\nrevision = "n"\nprecedence = {precedence}'
        return int(read(table, {"id": 1, "y": 1, "t": ts, "n": own})["revision"])

    assert 0 < revision(1, NOW) < revision(1, NOW + 1000) < revision(2, NOW - 10**11) < revision(7, NOW) < 2**32
    assert revision(1, NOW, 3) < revision(1, NOW, 4) < revision(2, NOW, 1)
    table = f'{OUTCOME}y = "y"\nprecedence = 1'
    for ts in (0, 2**62):
        found = Mapping(source(table)).read(b'{"id": 1, "y": 1}', None, (), "labels", ts)
        assert isinstance(found, Refusal)
        assert found.reason == "timestamp", "no field of the record is a revision"


@pytest.mark.parametrize(
    ("value", "reason"),
    [(b"", "empty"), (None, "passed"), (b"{", "not_json"), (b"[1]", "not_object"), (b"3", "not_object")],
)
def test_a_value_that_is_no_object_is_refused(value: bytes | None, reason: str) -> None:
    assert why(f'{OUTCOME}y = "y"', value).reason == reason


def test_json_is_read_behind_the_frame_of_a_registry_s_serializer() -> None:
    assert read(f'{OUTCOME}y = "y"', b'\x00\x00\x00\x00\x07{"id": 1, "y": 1}')["y"] == 1
    assert 'set format = "avro" or "protobuf"' in why(f'{OUTCOME}y = "y"', b"\x00\x00\x00\x00\x07\x02a").why


def test_cloud_events_are_read_in_both_modes() -> None:
    table = """
        topic = "labels"
        role = "outcome"
        event_id = "data.id"
        cloudevents = true
        y = "data.y"
        ts = "time"
        when = { type = "label" }
    """
    attributes = {"specversion": "1.0", "type": "label", "source": "/a", "id": "1", "time": "2023-11-14T22:13:20Z"}
    binary = [(f"ce_{name}", value.encode()) for name, value in attributes.items()]
    structured = [("content-type", b"application/cloudevents+json; charset=UTF-8")]
    expected = {"event_id": "7", "y": 1, "ts": NOW}
    assert read(table, {"id": 7, "y": 1}, headers=[*binary, ("content-type", b"application/json")]) == expected
    assert read(table, {**attributes, "data": {"id": 7, "y": 1}}, headers=structured) == expected
    assert read(table, {**attributes, "data_base64": "eyJpZCI6NywieSI6MX0="}, headers=structured) == expected
    assert why(table, {"id": 7, "y": 1}).reason == "format"
    assert why(table, {"id": 7}, headers=structured).reason == "format"
    assert why(table, {**attributes, "data_base64": "?"}, headers=structured).reason == "format"
    assert why(table, b"{", headers=structured).reason == "not_json"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('role = "forecast"', "give topic"),
        ('topic = "a"\ntopics = ["b"]\nrole = "forecast"', "give topic"),
        ('topic = "a b"\nrole = "forecast"', "not allowed as the name of a topic"),
        ('topic = "a"\nrole = "score"', "role is one of forecast, outcome"),
        (f'{OUTCOME}y = "y"\nweight = "w"', "has no setting 'weight'; there are: topic"),
        (OUTCOME, "y is missing"),
        (FORECAST, "give one of p, probs, quantiles, normal"),
        (f'{FORECAST}p = "p"\nprobs = "q"', "give one of"),
        (f'{FORECAST}p = "p"\nprecedence = 1', "precedence"),
        (f'{OUTCOME}y = "y"\nprecedence = 8', "precedence, of outcomes, is a whole number from 1 to 7"),
        (f'{OUTCOME}y = "y"\nformat = "xml"', "format is one of json"),
        (f'{OUTCOME}y = "y"\ncloudevents = 1', "cloudevents is true or false"),
        (f"{OUTCOME}y = 1", "y: a path is text"),
        (f"{OUTCOME}y = {{ constant = 'x' }}", "which is not a number"),
        (f"{OUTCOME}y = {{ constant = {2**60} }}", "too large to be exact"),
        (f"{OUTCOME}y = {{ path = 'x', labels = {{ a = {2**60} }} }}", "labels: a stands for"),
        (f"{OUTCOME}y = {{ path = 'x', constant = 1 }}", "not both"),
        (f"{OUTCOME}y = {{ path = 'x', label = {{ a = 1 }} }}", "no setting 'label'"),
        (f"{OUTCOME}y = {{ path = 'x', labels = {{ a = 'b' }} }}", "labels: a stands for"),
        (f"{OUTCOME}y = 'y'\nts = {{ path = 't', unit = 'h' }}", "ts: unit is one of s, ms, us"),
        (f"{OUTCOME}y = 'y'\nts = {{ path = 't', zone = 'Mars/X' }}", "ts: zone 'Mars/X' is not known"),
        (f"{OUTCOME}y = 'y'\nts = {{ path = 't', format = 'dd.mm' }}", "ts: format is as strptime"),
        (f"{OUTCOME}y = 'y'\nwhen = 'x'", "when is a table"),
        (f"{OUTCOME}y = 'y'\nwhen = {{ a = {{ least = 1 }} }}", "no setting 'least'"),
        (f"{FORECAST}p = {{ path = 'x', scale = 'stars' }}", "p: scale is one of probability"),
        (f"{FORECAST}p = {{ path = 'x', scale = [1, 1] }}", "a range has two ends"),
        (f"{FORECAST}p = 'p'\nx = {{ a = {{ path = 'x', range = [1] }} }}", "x: a range is two numbers"),
        (f"{FORECAST}p = 'p'\nx = {{ a = {{ path = 'x', categories = [1] }} }}", "categories is a list of texts"),
        (f"{FORECAST}p = 'p'\nsegments = {{}}", "segments: is a table such as"),
        (f"{FORECAST}normal = 'p'", "normal: is a table of mean, std"),
        (f"{FORECAST}quantiles = {{ levels = [0.1] }}", "quantiles: a path is text"),
    ],
)
def test_a_mapping_that_says_nothing_clear_is_refused_with_its_place(text: str, said: str) -> None:
    assert said in refused(text)


def test_a_topic_is_read_by_the_worker_or_by_the_intake_and_never_by_both() -> None:
    def of(*tables: str) -> list[bool]:
        text = "\n".join(f"[sources.s{n}]\n{table}" for n, table in enumerate(tables))
        sources = config.parse(tomllib.loads(text)["sources"])
        return [mode.direct for mode in modes.of(sources, "scores", "outcomes")]

    scores, labels = f'{FORECAST}p = "p"', f'{OUTCOME}y = "y"'
    assert of(scores, labels) == [True, False]
    assert of(scores.replace("scores", "others"), scores.replace("scores", "more")) == [False, False]
    with pytest.raises(ValueError, match="set TRUEUP_FORECASTS to a topic of trueup's own"):
        of(scores, scores.replace("scores", "others"))
    with pytest.raises(ValueError, match="role is outcome"):
        of(labels.replace('"labels"', '"scores"'))


@pytest.mark.parametrize(
    "deep", [b"[" * 1020 + b"]" * 1020, b'{"a":' * 1020 + b"1" + b"}" * 1020], ids=["list", "object"]
)
@pytest.mark.parametrize("field", ["id", "risk", "at", "model", "amount", "land", "x", "kind", "more", "y"])
def test_a_value_as_deep_as_json_may_be_is_a_record_or_a_refusal_at_every_place(field: str, deep: bytes) -> None:
    table = (
        'topic = "s"\nrole = "forecast"\nevent_id = "id"\nstream = "model"\np = "risk"\nts = "at"\n'
        'segments = { land = "land" }\ncarry = { more = "more" }\nwhen = { kind = { not = "k" } }\n'
    )
    features = 'x = { amount = { path = "amount", range = [0, 1] } }\n'
    labels = 'topic = "s"\nrole = "outcome"\nevent_id = "id"\nts = "at"\ny = { path = "y", labels = { lost = 1 } }\n'
    said = {"id": "a", "risk": 0.5, "at": NOW, "model": "m", "y": "lost", "kind": "s"}
    whole = orjson.dumps({**said, field: None})
    value = whole.replace(b"null", deep)
    for text in (table + features, table + 'x = "x"\n', labels, labels.replace(", labels = { lost = 1 }", "")):
        found = Mapping(source(text)).read(value, b"k", (), "s", NOW)
        assert isinstance(found, dict) or len(found.why) < 200
