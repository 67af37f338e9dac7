"""Compressed records: what any of Kafka's codecs packed is read, in the inputs and in what the worker wrote itself."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from lab.broker import KAFKA
from streams.config.settings import Settings
from streams.kafka import remarks, topics
from tests.e2e.world import MakeWorld, World, wait_for
from tests.events import Sent, forecast, mixed, outcome

CODECS = ("gzip", "snappy", "lz4", "zstd")
JAVA = Path(__file__).parent / "java"
#: Topics the worker writes, and whether each is compacted.
WRITTEN = {"calibrated": False, "resolved": False, "dead-letters": False, "changelog": True}


def packings(settings: Settings) -> list[str]:
    return [remark for remark in asyncio.run(remarks.of([settings])) if "compression.type" in remark]


def test_topics_whose_own_codec_is_another_are_written_restored_and_remarked_on(world: MakeWorld) -> None:
    w, codec = world(TRUEUP_COMPRESSION="none"), "lz4"
    most = str(w.settings.checkpoint_bytes + topics.BATCH_OVERHEAD)
    for label, compacted in WRITTEN.items():
        own = {"cleanup_policy": "compact", "max_message_bytes": most} if compacted else {"cleanup_policy": "delete"}
        w.configure(label, compression_type=codec, **own)
    wanted = [f"topic {w.topic(label)} has compression.type={codec}" for label in WRITTEN]

    def remarked() -> bool:
        return [remark.split(",")[0] for remark in packings(w.settings)] == wanted

    wait_for("the brokers to know of the change", remarked, 20)
    assert asyncio.run(topics.check(w.settings)) == []
    assert packings(replace(w.settings, compression=codec)) == []
    w.serve(mixed(300).sent)
    shutil.rmtree(w.directory / "data")
    w.serve([forecast("after", 0.5, 3_000_000)])
    w.judge()


@pytest.mark.skipif(shutil.which("javac") is None, reason="no javac: a Java producer is compiled as it is run")
def test_records_of_a_stock_java_producer_are_read_by_every_codec(world: MakeWorld) -> None:
    w = world(partitions=1)
    sent = []
    for i, codec in enumerate((*CODECS, "none")):
        few = [forecast(f"{codec}-{n}", n / 3, 1000 + 10 * i + n) for n in range(3)]
        sent += [(codec, record) for record in [*few, outcome(f"{codec}-0", i % 2, 1009 + 10 * i)]]
    produce_by_java(w, sent)
    with w.worker() as worker:
        w.wait_until_applied(len(sent))
        assert worker.stop() == 0
    applied = w.applied()
    assert (applied["forecasts_issued"], applied["outcomes_resolved"]) == (15, 5)
    w.judge()


def produce_by_java(w: World, records: Iterable[tuple[str, Sent]]) -> None:
    """Send records in order by Apache Kafka's own producer, each by a codec."""
    lines = [
        "\t".join([codec, w.topic(record.topic), str(record.ts), record.key.decode(), record.value.decode()])
        for codec, record in records
    ]
    subprocess.run(
        [
            shutil.which("java") or "java",
            "-cp",
            f"{KAFKA / 'lib'}/*",
            str(JAVA / "Producer.java"),
            w.settings.brokers[0],
        ],
        input="\n".join(lines).encode(),
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=120,
    )
