"""The page on sources: its examples are read, and what it says of fields is what there is."""

import re
import tomllib
from pathlib import Path

import orjson

from state.events import Carried, Forecast, Outcome, Rejected
from state.fence import FORECASTS
from state.policies import Policies
from state.policy import Policy
from streams.records.decoding import REASONS, Decoder
from streams.records.limits import Limits
from streams.records.output_json import encode_raw
from streams.sources import config
from streams.sources.carrying import headers
from streams.sources.fields import FIELDS
from streams.sources.mapping import Mapping

PAGE = (Path(__file__).resolve().parents[3] / "docs/how-to/sources.md").read_text()
NOW = 1_700_000_000_000


def test_the_first_example_maps_what_it_is_for() -> None:
    text, _ = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    scores, chargebacks, decisions = map(Mapping, config.parse(tomllib.loads(text)["sources"]))
    score = {"type": "score", "transaction": {"id": "a1"}, "model": {"name": "m"}, "country": "DE", "riskScore": 310}
    made = scores.read(orjson.dumps(score | {"scoredAt": "2023-11-14T22:13:20Z"}), None, (), "scores.v3", 0)
    assert made == {"event_id": "a1", "stream": "m-DE", "p": 0.31, "ts": NOW}
    lost = chargebacks.read(b'{"txn": "a1", "status": "lost"}', None, (), "chargebacks", NOW)
    legit = decisions.read(b'{"fraud": false}', b"a1", (), "analyst-decisions", NOW + 10**9)
    assert isinstance(lost, dict)
    assert isinstance(legit, dict)
    assert (lost["y"], legit["y"]) == (1, 0)
    assert lost["revision"] > legit["revision"]


def test_inline_tables_are_of_a_source_that_there_is() -> None:
    (features,) = re.findall(r"features by name: `(.*?)`", PAGE)
    (when,) = re.findall(r"must hold: `(.*?)`", PAGE, re.DOTALL)
    text = f"""
        [sources.a]
        topic = "a"
        role = "forecast"
        event_id = "id"
        stream = "s"
        p = "p"
        x = {features}
        when = {when.replace(chr(10), " ")}
    """
    (source,) = config.parse(tomllib.loads(text)["sources"])
    record = {"id": "e", "s": "s", "p": 0.5, "amount": 2500, "channel": "app", "type": "score", "status": "final"}
    made = Mapping(source).read(
        orjson.dumps(record | {"test": False, "a": {"b": 1}, "amount": 900}), None, (), "a", NOW
    )
    assert isinstance(made, dict)
    assert made["x"].keys() == {"amount", "channel=web", "channel=app"}


def test_every_field_is_in_its_table() -> None:
    described = PAGE.split("## Fields")[1].split("## Formats")[0]
    assert [name for role in FIELDS.values() for name in role if f"`{name}`" not in described] == []


def test_the_example_records_are_what_the_decoder_takes() -> None:
    block = PAGE.split("## Records")[1].split("```json\n")[1].split("```")[0]
    forecast, outcome = block.splitlines()
    decoder = Decoder(Policies(default=Policy()), Limits())
    assert isinstance(decoder.forecast(0, None, forecast.encode(), NOW), Forecast)
    assert isinstance(decoder.outcome(0, None, outcome.encode(), NOW + 10**9), Outcome)


def test_what_goes_on_is_as_the_example_says() -> None:
    _, text = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    table = tomllib.loads(text)
    assert headers(table["carry_headers"]) == ("traceparent", "tracestate", "x-*")
    needed = {"topic": "t", "role": "forecast", "event_id": "id", "stream": "s", "p": "p"}
    (source,) = config.parse({"scores": {**needed, **table["sources"]["scores"]}})
    record = {"id": "e", "s": "s", "p": 0.5, "payment": {"customer": "c"}, "country": "DE", "channel": "web"}
    made = Mapping(source).read(orjson.dumps(record), None, [("ce_id", b"1"), ("lane", b"slow")], "t", NOW)
    assert isinstance(made, dict)
    assert made["carried"] == ((("ce_id", b"1"),), b'{"customer":"c","lane":"slow","route":"DE/web"}')


def test_the_page_says_of_every_reason_whether_it_is_answered() -> None:
    described = PAGE.split("## A forecast that cannot be calibrated")[1].split("## Formats")[0]
    of_forecasts = REASONS.keys() - {"label", "revision"} | {"far_ahead"}
    assert sorted(name for name in of_forecasts if f"`{name}`" not in described) == []


def test_the_example_of_a_raw_answer_is_one() -> None:
    block = PAGE.split("## A forecast that cannot be calibrated")[1].split("```json\n")[1].split("```")[0]
    carried = Carried((), b'{"customer":"c7"}')
    forecast = Forecast(17, b"k", "a1", "cards-DE", 0.31, (), NOW, None, (), carried)
    letter = Rejected(17, b"k", b"", FORECASTS, "features", forecast=forecast)
    assert orjson.loads(encode_raw(letter, forecast, "scores.v3", 0)) == orjson.loads(block)
