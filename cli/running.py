"""What workers run: the policies that they announced last. The streams file may have changed since."""

import asyncio
import sys
from dataclasses import replace

import orjson
from aiokafka.errors import KafkaError

from state.policies import Policies
from streams.config import in_force
from streams.config.in_force import InForce, InForceError
from streams.config.settings import Settings
from streams.faust.in_force import announced
from streams.kafka.topics import TopicsError, partitions


def running(settings: Settings) -> Settings:
    """Return the settings with the policies that workers run, and say on standard error where the file has others.

    They are returned as they are where no worker has announced any; also where these cannot be read, which is said.
    """
    try:
        newest = asyncio.run(_newest(settings))
        policies = settings.policies if newest is None else in_force.restored(newest.configuration, settings).policies
    except (InForceError, KafkaError, OSError, TopicsError) as exc:
        sys.stderr.write(f"trueup: what workers run cannot be read, the streams file is taken for it: {exc}\n")
        return settings
    if newest is not None and _plain(policies) != _plain(settings.policies):
        sys.stderr.write(
            f"trueup: workers run other streams than the streams file has, since {newest.at}. This is what they run; "
            "they take the file up when they are restarted\n"
        )
    return replace(settings, policies=policies)


async def _newest(settings: Settings) -> InForce | None:
    """Return what a worker announced last, in any partition; None if none has."""
    if await partitions(settings, settings.configurations) is None:
        return None
    told = await announced(settings)
    return max((each[-1] for each in told.values() if each), key=lambda each: each.at, default=None)


def _plain(policies: Policies) -> bytes:
    default = policies.default and in_force.plain(policies.default)
    return orjson.dumps([[[name, in_force.plain(policy)] for name, policy in policies.patterns], default])
