"""Warnings about settings of topics that are allowed but risky."""

from collections.abc import Mapping, Sequence

from streams.config.settings import Settings
from streams.kafka import owners, permissions
from streams.kafka.topics import DELETE_RETENTION_MS, Topic, admin_client, configs_of, wanted

#: Shortest retention of an input without a warning, ms. After a crash, records since the last checkpoint are read
#: again. Before that, the session of the dead worker must end and the state must be restored. With a large state that
#: takes minutes.
INPUT_RETENTION_MS = 3_600_000


async def of(stages: Sequence[Settings]) -> list[str]:
    """Return warnings about allowed settings of the topics of some stages, one sentence each.

    They are about topics of another application, about a ``compression.type`` that makes the brokers compress batches
    again, about a changelog that keeps deletions and inputs that keep records for a short time, and about acknowledged
    records that may be lost.
    """
    found: list[str] = []
    configs: dict[str, dict[str, str]] = {}
    for settings in stages:
        async with admin_client(settings) as admin:
            topics = [topic for topic in wanted(settings) if topic.name not in configs]
            allowed = await permissions.of_topics(admin, [*(topic.name for topic in topics), settings.owners])
            found += await owners.problems(settings, allowed.get(settings.owners, frozenset()))
            for topic in topics:
                granted = allowed.get(topic.name, frozenset())
                if granted is None or "DescribeConfigs" in granted:
                    configs[topic.name] = await configs_of(admin, topic.name)
                    found += _remarks(topic, settings, configs[topic.name])
    return found + _losable(configs)


def _losable(configs: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return sentences about how acknowledged records may be lost, with the names of the topics."""
    alone = [name for name, each in configs.items() if int(each.get("min.insync.replicas", "1")) < 2]
    unclean = [name for name, each in configs.items() if each.get("unclean.leader.election.enable") == "true"]
    found = []
    if alone:
        found.append(
            f"min.insync.replicas is below 2 for {', '.join(alone)}: what was acknowledged is lost with one broker's "
            "disk; set it to 2, with three replicas"
        )
    if unclean:
        found.append(
            f"unclean.leader.election.enable=true for {', '.join(unclean)}: a replica that lags may lead, and what it "
            "lacks is lost although it was acknowledged; set it to false"
        )
    return found


def _remarks(topic: Topic, settings: Settings, configs: Mapping[str, str]) -> list[str]:
    kept = int(configs.get("delete.retention.ms", "86400000"))
    found = _packed(topic, settings.compression, configs)
    held = int(configs.get("retention.ms", "-1"))
    if topic.name in settings.inputs and 0 <= held < INPUT_RETENTION_MS:
        found.append(
            f"topic {topic.name} has retention.ms={held}: after a crash a worker reads the records since its last "
            f"checkpoint again, and ends if they are gone; set at least {INPUT_RETENTION_MS}, and more than the time "
            "for which workers may be down"
        )
    if topic.name == settings.changelog and kept < DELETE_RETENTION_MS:
        found.append(
            f"topic {topic.name} has delete.retention.ms={kept}: a disk that was away for half of that is restored "
            f"from the first record; set {DELETE_RETENTION_MS}"
        )
    return found


def _packed(topic: Topic, ours: str, configs: Mapping[str, str]) -> list[str]:
    if not topic.batch_bytes:  # it is an input, which producers write
        return []
    theirs = configs.get("compression.type", "producer")
    if theirs in ("producer", "uncompressed" if ours == "none" else ours):
        return []
    same = "none" if theirs == "uncompressed" else theirs
    said = (
        f"topic {topic.name} has compression.type={theirs}, and TRUEUP_COMPRESSION is {ours}: "
        f"the brokers pack every batch anew; set compression.type=producer, or TRUEUP_COMPRESSION={same}"
    )
    return [said]
