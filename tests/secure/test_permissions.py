"""A worker's user needs these grants and no others; without one of them it is told which."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agents.worker import FAILED, MISCONFIGURED
from cli import show, skip
from streams.config.settings import Settings
from streams.kafka import topics
from streams.kafka.permissions import commands, of_intake
from streams.kafka.topics import TopicsError
from tests.e2e.test_intake import WIDTHS, Hour, made
from tests.e2e.world import World, held, wait_for
from tests.night import by_night
from tests.secure.conftest import single
from tests.secure.fortress import OTHER, Fortress

MakeWorld = Callable[..., World]


def test_each_grant_that_is_missing_is_named(world: MakeWorld, stronghold: Fortress, tmp_path: Path) -> None:
    w = Hour(world, tmp_path, "named").world
    settings = Settings.from_env({**w.environment, **stronghold.as_user()})
    found: list[str] = []

    def says(*wanted: str) -> bool:
        found[:] = asyncio.run(topics.check(settings))
        return len(found) == bool(wanted) and all(word in sentence for sentence in found for word in wanted)

    wait_for("the grants", says)
    for grant, operation in list(single(w.settings))[:: 1 if by_night() else 3]:
        stronghold.revoke(grant.kind, grant.name, operation, prefixed=grant.prefixed)
        lack = partial(says, "this user lacks", operation, f" on {grant.kind}", grant.name)
        wait_for(f"the lack of {operation} on {grant.name} to be told", lack, 20)
        stronghold.grant(grant.kind, grant.name, operation, prefixed=grant.prefixed)
        wait_for("the grant", says, 20)


def test_a_worker_without_any_grant_ends_and_names_them_all(world: MakeWorld, stronghold: Fortress) -> None:
    w = world(granted=False)
    with w.worker(**stronghold.as_user()) as worker:
        assert worker.process.wait(60) == MISCONFIGURED
    for grant, _ in single(w.settings):
        assert f" on {grant.kind}" in worker.printed
        # The topic that all applications share may be granted already, for another world.
        assert grant.name in worker.printed or grant.name == w.settings.owners
    assert "does not exist" not in worker.printed, "it exists; this user may not see it"


def test_making_topics_needs_create_describe_and_describe_configs(world: MakeWorld, stronghold: Fortress) -> None:
    w = world(granted=False)
    names = {
        name: f"{value}-made" for name, value in w.environment.items() if value.startswith(w.name) and value != w.name
    }
    environment = {**w.environment, **names, **stronghold.as_user(OTHER), "TRUEUP_APP_ID": f"{w.name}-made"}
    settings = Settings.from_env(environment)
    for operation in ("Describe", "DescribeConfigs"):
        stronghold.grant("topic", w.name, operation, prefixed=True, user=OTHER)
    with pytest.raises(TopicsError, match=r"cannot make topic .*AuthorizationFailed"):
        asyncio.run(topics.create(settings, partitions=1))
    stronghold.grant("cluster", "kafka-cluster", "Create", user=OTHER)

    def able() -> bool:
        try:
            return len(asyncio.run(topics.create(settings, partitions=1))) == 8
        except TopicsError:
            return False

    wait_for("the topics", able, 20)
    assert asyncio.run(topics.check(settings, as_worker=False)) == [], "who makes topics need not be allowed to work"


def test_intake_needs_its_grants_and_no_others_and_so_does_leaving_out_a_record_of_a_source(
    world: MakeWorld, stronghold: Fortress, tmp_path: Path
) -> None:
    hour = Hour(partial(world, granted=False), tmp_path, "granted")
    w, mine = hour.world, stronghold.as_user()
    for grant in of_intake(w.settings):
        for operation in grant.operations:
            stronghold.grant(grant.kind, grant.name, operation)
    hour.send(made(20))
    topic = hour.topics["decisions"]

    async def filled() -> Any:
        return min([each.partition async for each in held(w.bootstrap, topic, range(WIDTHS["decisions"]))])

    place = f"{topic}/{asyncio.run(filled())}@0"
    assert f"{place} is left out" in skip.run(Settings.from_env({**w.environment, **mine}), place, "ticket 7")
    with w.worker("--stage", "intake", **mine) as intake:
        hour.taken()
        assert f"leaving out {place}: ticket 7" in intake.printed
        assert intake.stop() == 0, intake.printed
    stronghold.revoke("topic", w.settings.configurations, "Read")
    with w.worker("--stage", "intake", **mine) as intake:
        assert intake.process.wait(60) == FAILED
        assert "TopicAuthorizationFailed" in intake.printed


def test_inspecting_needs_to_read_the_changelog_alone(world: MakeWorld, stronghold: Fortress) -> None:
    w = world(granted=False)
    settings = Settings.from_env({**w.environment, **stronghold.as_user(OTHER)})
    stronghold.grant("topic", settings.changelog, "Read", user=OTHER)

    def read() -> bool:
        try:
            return not asyncio.run(show.read(settings)).streams
        except TopicsError:
            return False

    wait_for("the changelog to be read", read, 20)


def test_the_commands_grant_what_is_needed() -> None:
    said = commands(Settings(app_id="mine", brokers=("b:1",)), "User:w orker")
    assert said[0] == (
        "kafka-acls.sh --bootstrap-server b:1 --command-config admin.properties --add --allow-principal 'User:w orker' "
        "--operation Read --operation DescribeConfigs --topic forecasts"
    )
    assert said[-1].endswith("--operation Write --transactional-id mine- --resource-pattern-type prefixed")
    assert len(said) == 11
