"""Compressed records: what any of Kafka's codecs packed is read, in the inputs and in what the worker wrote itself."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lab.broker import KAFKA
from streams.config.settings import Settings
from streams.kafka import remarks, topics
from tests.e2e.world import MakeWorld, World, wait_for
from tests.events import Sent, forecast, outcome

CODECS = ("gzip", "snappy", "lz4", "zstd")
JAVA = Path(__file__).parent / "java"
#: Topics the worker writes, and whether each is compacted.
WRITTEN = {"calibrated": False, "resolved": False, "dead-letters": False, "changelog": True}


def packings(settings: Settings) -> list[str]:
    return [remark for remark in asyncio.run(remarks.of([settings])) if "compression.type" in remark]


def test_what_a_java_producer_packed_by_any_codec_is_read_and_topics_of_another_codec_are_remarked_on(
    world: MakeWorld,
) -> None:
    w, own = world(partitions=1, TRUEUP_COMPRESSION="none"), "lz4"
    most = str(w.settings.checkpoint_bytes + topics.BATCH_OVERHEAD)
    for label, compacted in WRITTEN.items():
        policy = {"cleanup_policy": "compact", "max_message_bytes": most} if compacted else {"cleanup_policy": "delete"}
        w.configure(label, compression_type=own, **policy)
    wanted = [f"topic {w.topic(label)} has compression.type={own}" for label in WRITTEN]

    def remarked() -> bool:
        return [remark.split(",")[0] for remark in packings(w.settings)] == wanted

    wait_for("the brokers to know of the change", remarked, 20)
    assert asyncio.run(topics.check(w.settings)) == []
    assert packings(replace(w.settings, compression=own)) == []
    sent = []
    for i, codec in enumerate((*CODECS, "none")):
        few = [forecast(f"{codec}-{n}", n / 3, 1000 + 10 * i + n) for n in range(3)]
        sent += [(codec, record) for record in [*few, outcome(f"{codec}-0", i % 2, 1009 + 10 * i)]]
    produce_by_java(w, sent)
    w.sent = len(sent)
    w.serve()
    applied = w.applied()
    assert (applied["forecasts_issued"], applied["outcomes_resolved"]) == (15, 5)
    shutil.rmtree(w.directory / "data")
    w.serve([forecast("after", 0.5, 3_000_000)])
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
