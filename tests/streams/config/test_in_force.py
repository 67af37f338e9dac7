"""What is in force is written so that it can be read as it was, whatever the order in which the records stand."""

import random
from pathlib import Path

import orjson
import pytest

from state import calibrators
from state.formats import ARITHMETIC
from state.policies import Policies
from state.policy import Policy
from streams.config import in_force
from streams.config.in_force import InForce, InForceError, Mapped, OtherArithmeticError
from streams.config.settings import Settings

FILE = """
closed = true
early_ttl = "3d"
on_error = "raw"
carry_headers = ["x-*"]
[streams."fraud-*"]
on_error = "none"
calibrator = "platt+regret_matching"
options = { grid = 20 }
ttl = "90d"
matures = "45d"
silence = 0
learn = "arrival"
revisable = "120d"
features = ["amount", "age"]
seed = 18446744073709551615
segments = ["country", "channel"]
pairs = [["country", "channel"]]
segments_required = true
bands = { pass = 0, review = 0.02, block = 0.3 }
hold = "volume"
points = { base = 600, odds = 50, double = 20 }
cost_miss = 300
cost_alert = 8
shadow = ["minimax", { calibrator = "histogram", options = { bins = 20 } }]
[streams.demand]
calibrator = "quantile"
options = { levels = [0.1, 0.5, 0.9] }
[streams.intent]
calibrator = "multiclass"
options = { classes = 3, each = "histogram" }
[sources.a]
topic = "forecasts"
role = "forecast"
event_id = "i"
stream = "s"
p = "p"
carry = { who = "w" }
"""
NOW = InForce(40, 1000, (600, 400), in_force.described(Settings()), "worker-1", "2026-11-22T05:00:00+00:00")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "streams.toml"
    path.write_text(FILE)
    return Settings.from_env({"TRUEUP_STREAMS": str(path), "TRUEUP_RECORD_BYTES": "1000", "TRUEUP_LETTER_BYTES": "99"})


def test_what_was_written_means_what_was_in_force(settings: Settings) -> None:
    written = in_force.described(settings)
    assert settings.policies.of("fraud-eu").bands.layout  # type: ignore[union-attr]
    assert in_force.described(settings) == written, "what was asked of a policy changes nothing"
    read = in_force.restored(written, Settings())
    assert in_force.described(read) == written
    assert (read.limits, read.unpacked_bytes) == (settings.limits, settings.unpacked_bytes)
    assert read.policies.of("other") is None
    assert [read.policies.answers_raw(stream) for stream in ("fraud-eu", "demand", "")] == [False, True, True]
    assert read.carry_headers == ("x-*",)
    assert [dict(each.table) for each in read.sources] == [dict(each.table) for each in settings.sources]
    for stream in ("fraud-eu", "demand", "intent"):
        was, now = settings.policies.of(stream), read.policies.of(stream)
        assert was is not None
        assert now is not None
        assert (now.config, now.labels, now.kind, now.features) == (was.config, was.labels, was.kind, was.features)
        assert (now.layout, now.segments_required) == (was.layout, was.segments_required)
        assert [each.config for each in now.challengers] == [each.config for each in was.challengers]
        assert (now.bands, now.points, now.costs) == (was.bands, was.points, was.costs)
    assert settings.policies.of("fraud-eu").bands.hold  # type: ignore[union-attr]


def test_what_another_arithmetic_answered_is_not_answered_by_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    written = in_force.described(Settings())
    monkeypatch.setattr(in_force, "ARITHMETIC", ARITHMETIC + 1)
    assert in_force.digest(in_force.described(Settings())) != in_force.digest(written)
    said = rf"version {ARITHMETIC} of the arithmetic, this build has {ARITHMETIC + 1}"
    with pytest.raises(OtherArithmeticError, match=said) as caught:
        in_force.restored(written, Settings())
    assert caught.value.version == ARITHMETIC
    fields = orjson.loads(written) | {"streams": "what only that build reads"}
    with pytest.raises(OtherArithmeticError, match=said):
        in_force.restored(orjson.dumps(fields), Settings())


@pytest.mark.parametrize("name", [*calibrators.REGISTRY, *calibrators.VECTORS])
def test_every_calibrator_is_the_same_again(name: str) -> None:
    policies = Policies([("*", Policy(name))])
    read = in_force.restored(in_force.described(Settings(policies=policies)), Settings())
    policy = read.policies.of("any")
    assert policy is not None
    assert policy.recipe == Policy(name).recipe


def test_rows_larger_than_a_batch_of_today_were_in_force_all_the_same() -> None:
    policy = Policy("minimax", {"buckets": 400, "grid": 400})
    assert policy.row_bytes > Settings().batch_bytes
    written = in_force.described(Settings(policies=Policies([("s", policy)]), batch_bytes=2 * policy.row_bytes))
    assert in_force.described(in_force.restored(written, Settings())) == written


def test_what_was_drawn_with_another_key_is_refused_by_its_name() -> None:
    keyed, other = (Settings(policies=Policies(coin=coin)) for coin in (b"0123456789abcdef", b"fedcba9876543210"))
    written = in_force.described(keyed)
    assert b"0123456789abcdef" not in written
    assert in_force.restored(written, keyed).policies.coin == keyed.policies.coin
    for settings in (other, Settings()):
        with pytest.raises(InForceError, match=f"drew with key {keyed.policies.coin_name}, TRUEUP_COIN_KEY here"):
            in_force.restored(written, settings)
    with pytest.raises(InForceError, match="drew with no key"):
        in_force.restored(in_force.described(Settings()), keyed)


SOURCES = """
carry_headers = ["x-*"]
[streams."*"]
calibrator = "platt"
shards = 3
[sources.zebra]
topics = ["a", "b"]
role = "forecast"
event_id = "id"
stream = "s"
p = "p"
when = { kind = "x" }
[sources.ant]
topic = "a"
role = "forecast"
event_id = "id"
stream = "t"
p = "p"
"""


def test_what_intake_runs_is_read_as_it_was_with_the_order_of_its_sources(tmp_path: Path) -> None:
    path = tmp_path / "streams.toml"
    path.write_text(SOURCES)
    settings = Settings.from_env({"TRUEUP_STREAMS": str(path), "TRUEUP_LETTER_BYTES": "99"})
    written = in_force.mapping(settings)
    read = in_force.restored(written, Settings(policies=Policies(coin=b"0123456789abcdef")))
    assert in_force.mapping(read) == written
    assert [(each.name, each.topics, list(each.table.items())) for each in read.sources] == [
        (each.name, each.topics, list(each.table.items())) for each in settings.sources
    ], "of the sources of a topic the first counts, and the fields of a table are those of the record, in order"
    now = Mapped("a", "id-of-a", 2, 1000, written, "one", "2026-11-22T05:00:00+00:00")
    later = Mapped("a", "id-of-a", 2, 20_000, in_force.mapping(Settings()), "two", "later")
    found = [*in_force.mapped_records(later, 64), *in_force.mapped_records(now, 64), *in_force.records(NOW, 64)]
    random.Random(1).shuffle(found)
    assert in_force.read_mapped(found) == [now, later]
    assert in_force.read(found) == [NOW]
    assert in_force.read(found, in_force.ROUTER) == []
    assert in_force.read(in_force.records(NOW, 64, in_force.ROUTER), in_force.ROUTER) == [NOW]
    with pytest.raises(InForceError, match="is missing"):
        in_force.read_mapped([each for each in found if each[0].startswith(b"mapped/")])


def test_records_are_read_in_any_order_and_the_oldest_claim_is_first() -> None:
    later = InForce(77, 1000, (600, 400), in_force.described(Settings(record_bytes=999)), "worker-2", "later")
    found = [*in_force.records(later, 100), *in_force.records(NOW, 64), *in_force.records(NOW, 64)]
    random.Random(1).shuffle(found)
    assert in_force.read(found) == [NOW, later]
    assert max(len(value) for _, value in in_force.records(NOW, 64)[:-1]) == 64


def test_records_that_are_missing_or_altered_are_refused() -> None:
    found = in_force.records(NOW, 300)
    for lost in range(len(found) - 1):
        with pytest.raises(InForceError, match="is missing"):
            in_force.read(found[:lost] + found[lost + 1 :])
    key, part = found[0]
    with pytest.raises(InForceError, match="does not have the hash in its name"):
        in_force.read([(key, part.replace(b"0", b"1")), *found[1:]])
    key, said = found[-1]
    with pytest.raises(InForceError, match="has version 2, this program reads 1"):
        in_force.read([*found[:-1], (key, orjson.dumps(orjson.loads(said) | {"version": 2}))])
    backwards = in_force.records(InForce(41, 999, (599, 400), NOW.configuration), 300)
    with pytest.raises(InForceError, match="claim 41 took the partition up after 999 records, claim 40"):
        in_force.read([*found, *backwards])


def test_a_configuration_of_a_later_version_is_refused() -> None:
    made = orjson.loads(NOW.configuration)
    made["default"]["calibrator"] = "of-tomorrow"
    with pytest.raises(InForceError, match="cannot be read by this version"):
        in_force.restored(orjson.dumps(made), Settings())
