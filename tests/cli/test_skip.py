"""What `trueup state skip` writes down; the tests with brokers are in `tests.e2e.test_poison`."""

import pytest

from cli import skip
from streams.config.settings import Settings
from streams.records.skips import Skip


def test_a_user_without_a_name_is_told_by_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[int, Skip]] = []

    async def append(_: Settings, partition: int, made: Skip, **__: bool) -> None:
        written.append((partition, made))

    monkeypatch.setattr(skip, "_append", append)
    monkeypatch.delenv("USER", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 1_000_720_000)  # as OpenShift gives them
    settings = Settings.from_env({})
    skip.run(settings, f"{settings.outcomes}/3@7", " why ")
    ((partition, made),) = written
    assert (partition, made.offset, made.reason, made.by) == (3, 7, "why", "1000720000")
