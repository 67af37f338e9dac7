"""Two applications on one cluster: each writes its own topics, whoever dies and starts again."""

import asyncio
from collections.abc import Callable

import pytest

from cli import main
from streams.config.settings import TOPICS, Settings
from streams.kafka import owners, topics
from tests.e2e.world import World, wait_for
from tests.events import Sent

FORECASTS = [
    Sent("forecasts", b"k%d" % n, b'{"event_id":"e%d","stream":"s","p":0.%d}' % (n, n + 1), 1_700_000_000_000 + n)
    for n in range(8)
]


def test_second_application_writes_nothing_of_the_first_until_it_takes_its_place(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    production = world()
    mine = f"{production.name}-staging"
    copy, prefixed = {"TRUEUP_APP_ID": mine}, {"TRUEUP_APP_ID": mine, "TRUEUP_TOPIC_PREFIX": "staging."}
    staging = Settings.from_env(production.environment | prefixed)
    for settings in (Settings.from_env(production.environment | copy), staging):
        asyncio.run(topics.create(settings, partitions=2))

    def command(*arguments: str, **settings: str) -> tuple[int, str]:
        for name, value in (production.environment | settings).items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        status, said = main.main(["topics", *arguments]), capsys.readouterr()
        return status, said.out + said.err

    def held() -> list[int]:
        return [len(production.read(label)) for label in TOPICS[:5]]

    production.send(FORECASTS)
    with production.worker() as worker:
        production.wait_until_applied(len(FORECASTS))
        before = held()
        # A copy is refused beside it, and so is one that takes its id for other topics.
        names = {"TRUEUP_FORECASTS": f"{production.name}-f", "TRUEUP_CALIBRATED": f"{production.name}-c"}
        asyncio.run(topics.create(Settings.from_env(production.environment | names), partitions=2))
        for changed, told in (
            (copy, f"belong to application {production.name}, and TRUEUP_APP_ID={mine}"),
            (names, ""),
        ):
            with production.worker(**changed, TRUEUP_DATA_DIR=str(production.directory / "copy")) as refused:
                assert refused.process.wait(60) == 78
                assert (told or f"application {production.name} works on other topics") in refused.printed
        status, said = command("take", **copy)
        assert status == 78
        assert f"group {production.name} has 1 members: stop them first" in said
        worker.kill()
    # It is so while nobody runs, too.
    status, said = command("check", **copy)
    assert status == 1
    assert "set TRUEUP_TOPIC_PREFIX or TRUEUP_CALIBRATED" in said
    # With a prefix both run, and the first is as it was.
    with production.worker(**prefixed, TRUEUP_DATA_DIR=str(production.directory / "staging")) as beside:
        with production.worker() as again:
            wait_for("both to serve", lambda: beside.ready() and again.ready())
            assert again.stop() == 0
        assert held() == before
        assert asyncio.run(topics.partitions(staging, staging.changelog)) == 2
        assert beside.stop() == 0
    # The copy takes its place, and then the first one is refused.
    assert command("take", **copy)[0] == 0
    assert command("check", **copy)[0] == 0
    with production.worker() as old:
        assert old.process.wait(60) == 78
        assert f"belong to application {mine}" in old.printed


def test_of_two_that_begin_at_one_moment_one_stays(world: Callable[..., World]) -> None:
    production = world()
    both = [Settings.from_env(production.environment | {"TRUEUP_APP_ID": f"{production.name}{n}"}) for n in "ab"]

    async def begin() -> list[list[str]]:
        return list(await asyncio.gather(*(owners.claim(each) for each in both)))

    found = asyncio.run(begin())
    assert sorted(map(len, found)) == [0, 1], "one is refused, in one sentence"
    again = [asyncio.run(owners.claim(each)) for each in both]
    assert [bool(each) for each in again] == [bool(each) for each in found], "and it is the same one ever after"
