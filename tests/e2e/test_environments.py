"""Two applications on one cluster: each writes its own topics, whoever dies and starts again."""

import asyncio

from streams.config.settings import TOPICS, Settings
from streams.kafka import topics
from tests.e2e.world import MakeWorld, wait_for
from tests.events import Sent

FORECASTS = [
    Sent("forecasts", b"k%d" % n, b'{"event_id":"e%d","stream":"s","p":0.%d}' % (n, n + 1), 1_700_000_000_000 + n)
    for n in range(8)
]


def test_second_application_writes_nothing_of_the_first_until_it_takes_its_place(world: MakeWorld) -> None:
    production = world()
    mine = f"{production.name}-staging"
    copy, prefixed = {"TRUEUP_APP_ID": mine}, {"TRUEUP_APP_ID": mine, "TRUEUP_TOPIC_PREFIX": "staging."}
    staging = Settings.from_env(production.environment | prefixed)
    for settings in (Settings.from_env(production.environment | copy), staging):
        asyncio.run(topics.create(settings, partitions=2))

    def command(*arguments: str, **settings: str) -> tuple[int, str]:
        said = production.command("topics", *arguments, **settings)
        return said.returncode, said.stdout + said.stderr

    def held() -> list[int]:
        return [len(production.read(label)) for label in TOPICS[:5]]

    production.send(FORECASTS)
    with production.worker() as worker:
        production.wait_until_applied()
        before = held()
        # A copy is refused beside it, and so is one that takes its id for other topics.
        names = {"TRUEUP_FORECASTS": f"{production.name}-f", "TRUEUP_CALIBRATED": f"{production.name}-c"}
        asyncio.run(topics.create(Settings.from_env(production.environment | names), partitions=2))
        for changed, told in (
            (copy, f"belong to application {production.name}, and TRUEUP_APP_ID={mine}"),
            (names, f"application {production.name} works on other topics"),
        ):
            production.refused(78, told, **changed, TRUEUP_DATA_DIR=str(production.directory / "copy"))
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
    production.refused(78, f"belong to application {mine}")
