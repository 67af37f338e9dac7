"""What leaves: every output in its topic, in order, in as many record batches as it takes."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import orjson
import pytest

from state.events import Calibrated, Carried, Forecast, Output, Rejected, Resolved
from state.fence import FORECASTS
from state.forecasts import Normal, Probs, Quantiles
from state.policies import Policies
from state.policy import Policy
from streams.config.settings import Settings
from streams.faust.outputs import Heard, Outputs
from streams.faust.producing import BatchProducer
from streams.records.encoding import EncodedRecord
from streams.records.output_avro import AvroValues
from streams.records.output_json import encode_calibrated, encode_raw, encode_resolved
from streams.sources.registry import Registry
from tests.streams.fakes import Producer, Row

SETTINGS = Settings(forecasts="my-f", outcomes="my-o", calibrated="my-c", resolved="my-r", dead_letters="my-d")
IDS = {"calibrated": 7, "resolved": 8}


def answer(i: int) -> Calibrated:
    return Calibrated(f"k{i}".encode(), f"e{i}", "s", 0.5, 0.4, 0.45, "platt", "0" * 8, i, 1000 + i, 1 + i)


def joined(i: int) -> Resolved:
    return Resolved(
        f"k{i}".encode(), f"e{i}", "s", 0.5, 0.4, 0.4, 1.0, "platt", i, 1000 + i, 2000 + i, 0, implied=False
    )


def letter(i: int, key: bytes | None = b"k", value: bytes | None = b"junk", topic: int = FORECASTS) -> Rejected:
    return Rejected(i, key, value, topic, "not_json")


class Sender:
    """Sends outputs to a producer that remembers."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.producer = Producer(settings.batch_bytes)
        self.counted: list[tuple[str, int]] = []
        produce = cast("Callable[[], BatchProducer]", lambda: self.producer)
        self.outputs = Outputs(settings, produce, lambda topic, n: self.counted.append((topic, n)))

    def send(self, *outputs: Output, partition: int = 3, heard: Heard | None = None) -> None:
        output_batch = self.outputs.batch(partition, self.outputs.settings, heard)
        half = len(outputs) // 2
        output_batch.add(outputs[:half])
        output_batch.add(outputs[half:])
        asyncio.run(self.outputs.send([output_batch]))


@pytest.fixture
def sender() -> Sender:
    return Sender()


def test_behind_the_first_that_is_missed_nothing_counts_as_said_however_it_looks() -> None:
    whole, again = Sender(), Sender()
    whole.send(answer(1), answer(2))
    missed, looks_like_it = whole.producer.rows("my-c")
    heard = Heard(("my-f", "my-o"))
    heard.said["calibrated"].append((looks_like_it.key, looks_like_it.value))  # a forecast that was answered before
    heard.ends["calibrated"] = 8
    assert heard.offsets == [7, None, None]
    again.send(answer(1), heard=heard)
    again.send(answer(2), heard=heard)
    assert again.producer.rows("my-c") == [missed, looks_like_it]
    assert heard.compare(3) == 1


@pytest.mark.parametrize("avro", [False, True], ids=["json", "avro"])
def test_what_another_kind_of_machine_has_said_stands(*, avro: bool) -> None:
    """The last bit of its numbers differs. Its answers are counted, and what it had not said yet follows."""
    registry = Registry("http://127.0.0.1:1")
    settings = replace(SETTINGS, registry=registry, output_format="avro", schema_ids=IDS) if avro else SETTINGS
    there, again = Sender(settings), Sender(settings)
    there.send(answer(1)._replace(p=0.45000000000000007), answer(2), joined(3)._replace(p=0.4000000000000001))
    heard = Heard(("my-f", "my-o"))
    for label, topic in (("calibrated", "my-c"), ("resolved", "my-r")):
        heard.said[label] += [(row.key, row.value) for row in there.producer.rows(topic)]
    again.send(answer(1), answer(2), answer(3), joined(3), heard=heard)
    assert [row.key for row in again.producer.rows("my-c")] == [b"k3"]
    assert not again.producer.rows("my-r")
    assert heard.compare(3) == 2


def test_each_output_goes_to_its_topic_and_its_inputs_partition_in_order_with_key_value_and_time(
    sender: Sender,
) -> None:
    """An answer has the time of its forecast, a joined record that of its outcome."""
    sender.send(answer(2), joined(9), answer(1), letter(1), answer(3))
    assert {(sent.topic, sent.partition) for sent in sender.producer.sent} == {("my-c", 3), ("my-r", 3), ("my-d", 3)}
    assert sender.producer.rows("my-c") == [
        Row(f"k{i}".encode(), encode_calibrated(answer(i)), 1000 + i) for i in (2, 1, 3)
    ]
    assert sender.producer.rows("my-r") == [Row(b"k9", encode_resolved(joined(9)), 2009)]
    assert [row.key for row in sender.producer.rows("my-d")] == [b"k"]


def test_a_letter_keeps_its_key_up_to_the_limit_and_answers_keep_theirs_however_short_letters_are() -> None:
    sender = Sender(replace(SETTINGS, letter_bytes=1))
    sender.send(answer(1), joined(2), letter(3, b"k"), letter(4, b"kk"), letter(5, None))
    keys = {topic: [row.key for row in sender.producer.rows(topic)] for topic in ("my-c", "my-r", "my-d")}
    assert keys == {"my-c": [b"k1"], "my-r": [b"k2"], "my-d": [b"k", None, None]}


def test_a_dead_forecast_is_answered_beside_its_letter_where_its_stream_says_so() -> None:
    policies = Policies([("s", Policy("histogram", on_error="raw"))], Policy("histogram"))
    sender = Sender(replace(SETTINGS, policies=policies))
    carried = Carried((("traceparent", b"00"),), b'{"a":1}')
    one = Forecast(7, b"k", "e\nscope", "s", 0.25, (), 1007, None, (), carried)
    other = one._replace(stream="other")
    dead = [letter(7)._replace(reason="erased", forecast=each, withheld=True) for each in (one, other)]
    sender.send(*dead)
    (row,) = sender.producer.rows("my-c")
    assert (row.key, row.timestamp) == (b"k", 1007)
    assert orjson.loads(row.value or b"") == {
        "event_id": "e",
        "stream": "s",
        "raw": 0.25,
        "p": 0.25,
        "calibrated": False,
        "reason": "erased",
        "ts": 1007,
        "dead_letter": {"topic": "my-f", "partition": 3, "offset": 7},
        "scope": "scope",
        "carried": {"a": 1},
    }
    assert [sent.headers for sent in sender.producer.sent if sent.topic == "my-c"] == [[[("traceparent", b"00")]]]
    assert len(sender.producer.rows("my-d")) == 2
    assert sender.outputs.raw_answers == 1


def test_with_schemas_answers_and_joined_forecasts_are_avro_and_letters_stay_json() -> None:
    policies = Policies([("s", Policy("histogram", on_error="raw"))], Policy("histogram"))
    registry = Registry("http://127.0.0.1:9")
    sender = Sender(replace(SETTINGS, policies=policies, registry=registry, output_format="avro", schema_ids=IDS))
    one = Forecast(7, b"k", "e", "s", 0.25, (), 1007)
    dead = letter(7)._replace(reason="erased", forecast=one, withheld=True)
    sender.send(answer(1), joined(1), dead)
    values = AvroValues(IDS)
    first, second = sender.producer.rows("my-c")
    assert (first.key, first.value, first.timestamp) == (answer(1).key, values.calibrated(answer(1)), answer(1).ts)
    assert (second.key, second.timestamp) == (b"k", 1007)
    assert second.value == values.of_json("calibrated", encode_raw(dead, one, "my-f", 3))
    assert [row.value for row in sender.producer.rows("my-r")] == [values.resolved(joined(1))]
    (row,) = sender.producer.rows("my-d")
    assert orjson.loads(row.value or b"")["reason"] == "erased"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (Probs((0.2, 0.8)), {"probs": [0.2, 0.8], "normalised": [0.2, 0.8], "argmax": 1}),
        (Quantiles((0.1, 0.9), (1.0, 2.0)), {"quantiles": {"levels": [0.1, 0.9], "values": [1.0, 2.0]}}),
        (Normal(1.0, 2.0), {"normal": {"mean": 1.0, "std": 2.0}}),
    ],
)
def test_a_raw_answer_of_classes_or_numbers_is_as_it_came(raw: Any, shown: dict[str, Any]) -> None:
    one = Forecast(7, b"k", "e", "", raw, (), 1007)
    value = orjson.loads(encode_raw(letter(7), one, "my-f", 3))
    assert shown.items() <= value.items()
    assert (value["stream"], value["calibrated"], "p" in value) == (None, False, False)


def test_what_does_not_fit_one_batch_goes_in_several_in_order() -> None:
    sender = Sender(Settings(policies=Policies(()), batch_bytes=20_000, letter_bytes=0))
    sender.send(*map(answer, range(400)))
    assert len(sender.producer.sent) > 1
    assert [orjson.loads(row.value or b"")["version"] for row in sender.producer.rows("calibrated")] == list(range(400))
    sizes = [sum(len(row.value or b"") for row in sent.rows) for sent in sender.producer.sent]
    assert max(sizes) <= 20_000
    assert min(sizes[:-1]) > 17_800


def test_a_record_that_does_not_fit_an_empty_batch_is_an_error(sender: Sender) -> None:
    class Full(Producer):
        def batch(self) -> "Full":  # type: ignore[override]
            return self

        def extend(self, _: object) -> int:
            return 0

    sender.producer = Full()
    with pytest.raises(ValueError, match="for my-c does not fit TRUEUP_BATCH_BYTES"):
        sender.send(answer(1))
    assert sender.counted == []


def test_outputs_of_a_machine_that_computes_otherwise_are_counted_and_its_partition_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard = Heard(("f", "o"))
    heard.said["calibrated"].extend([(b"a", b"{}"), (b"b", b"{}")])
    derived: EncodedRecord = b"a", b'{"p":.1}', None, []
    assert heard.unsaid("calibrated", [derived]) == [derived]
    heard.said["dead-letters"].append((b"c", b'{"topic":"o"}'))
    assert heard.compare(3) == 3
    assert "output topics of partition 3" in caplog.text


@pytest.mark.parametrize("derived", [[], [(b"a", b'{"topic":"f"}', None, [])]])
def test_dead_letters_of_intake_and_router_and_their_raw_answers_are_not_this_workers(
    derived: list[EncodedRecord], caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard(("f", "o"))
    heard.said["dead-letters"].append((None, b'{"topic":"payments","reason":"malformed"}'))
    heard.said["calibrated"].append((b"k", b'{"p":0.1,"dead_letter":{"topic":"payments"}}'))
    assert heard.unsaid("dead-letters", derived) == derived
    assert not heard.compare(3)
    assert not caplog.text
