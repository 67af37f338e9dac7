"""The schemas of outputs in the registry: registered or looked up, waited for, or refused in words."""

import asyncio
import json
import logging
import socket
from typing import Any

import pytest

from streams.config import output_ids
from streams.config.settings import Settings, SettingsError
from streams.records.output_schemas import avro, text
from streams.sources import wait
from tests.streams.sources.registries import StandIn

OTHER = '{"type": "record", "name": "Score", "namespace": "acme", "fields": []}'


def settings(url: str, **changed: str) -> Settings:
    environment = {"TRUEUP_OUTPUT_FORMAT": "avro", "TRUEUP_REGISTRY_URL": url}
    return Settings.from_env(environment | {f"TRUEUP_{name.upper()}": value for name, value in changed.items()})


async def known(registry: StandIn, *labels: str, **changed: str) -> dict[str, int]:
    async with registry.served() as url:
        return dict((await output_ids.known(settings(url, **changed), labels or ("calibrated", "resolved"))).schema_ids)


async def test_outputs_in_json_ask_nobody() -> None:
    plain = Settings()
    assert await output_ids.known(plain) is plain
    assert not plain.schema_ids


async def test_schemas_are_registered_once_under_the_subjects_of_their_topics() -> None:
    registry = StandIn()
    ids = await known(registry, calibrated="answers")
    assert registry.subjects == {"answers-value": [ids["calibrated"]], "resolved-value": [ids["resolved"]]}
    assert registry.schemas[f"schemas/ids/{ids['resolved']}"] == {"schema": text("resolved")}
    assert await known(registry, calibrated="answers") == ids
    assert await known(registry, calibrated="answers", output_register="no") == ids
    assert len(registry.schemas) == 2


async def test_a_process_that_writes_one_topic_asks_for_one_schema() -> None:
    registry = StandIn()
    assert (await known(registry, "calibrated")).keys() == {"calibrated"}
    assert registry.subjects.keys() == {"calibrated-value"}


async def test_a_schema_that_may_not_be_registered_is_looked_up() -> None:
    registry = StandIn(read_only=True)
    with pytest.raises(SettingsError, match=r"403.*denied operation Write.*TRUEUP_OUTPUT_REGISTER=no"):
        await known(registry)
    with pytest.raises(
        SettingsError, match=r"trueup.Calibrated under the subject calibrated-value, which has no schema"
    ):
        await known(registry, output_register="no")
    registry.read_only = False
    ids = await known(registry)
    registry.read_only = True
    assert await known(registry, output_register="no") == ids


@pytest.mark.parametrize(
    ("held", "named"),
    [
        ({"schema": OTHER}, "acme.Score as version 1, id 17:"),
        ({"schema": "message {"}, "another schema as version 1, id 17:"),
        ({"schema": '{"title": "Score"}', "schemaType": "JSON"}, "another schema as version 1, id 17, of JSON"),
    ],
)
async def test_what_a_subject_has_is_named_with_its_kind_if_that_is_another(held: dict[str, str], named: str) -> None:
    registry = StandIn(subjects={"calibrated-value": [17]})
    registry.posted = lambda *_: (409, {"error_code": 409, "message": "incompatible"})  # type: ignore[method-assign]
    registry.schemas["schemas/ids/17"] = held
    with pytest.raises(SettingsError) as refused:
        await known(registry)
    said = str(refused.value)
    assert said.startswith("TRUEUP_OUTPUT_FORMAT=avro: the registry does not give the schema trueup.Calibrated")
    assert f"which has {named}" in said
    assert "'trueup schema calibrated' prints it" in said


async def test_a_schema_with_more_fields_than_ours_does_not_stop_a_worker_of_before() -> None:
    later = avro("calibrated")
    later["fields"].append({"name": "more", "type": ["null", "string"], "default": None})
    registry = StandIn()
    ids = await known(registry)
    number = len(registry.schemas) + 1
    registry.schemas[f"schemas/ids/{number}"] = {"schema": json.dumps(later)}
    registry.subjects["calibrated-value"].append(number)
    assert await known(registry) == ids


async def test_nothing_is_registered_where_schemas_of_another_kind_are() -> None:
    registry = StandIn({"schemas/ids/17": {"schema": "{}", "schemaType": "JSON"}}, subjects={"calibrated-value": [17]})
    for register in ("yes", "no"):
        with pytest.raises(SettingsError, match=r"of JSON: .*404.*schemas of another kind are for another subject"):
            await known(registry, output_register=register)
    assert len(registry.schemas) == 1
    # Somebody has registered it there.
    registry.schemas["schemas/ids/9"] = {"schema": text("calibrated")}
    registry.subjects["calibrated-value"][:0] = [9]
    assert await known(registry, "calibrated") == {"calibrated": 9}


async def test_who_may_not_ask_is_told_so() -> None:
    with pytest.raises(SettingsError, match=r"calibrated-value, which cannot be read: .*401"):
        await known(StandIn(authorization="Bearer x"))


async def test_a_registry_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(wait, "FIRST_PAUSE", 0.01)
    registry = StandIn(broken=[503, 500, 429])
    with caplog.at_level(logging.WARNING, "trueup"):
        assert len(await known(registry)) == 2
    waits = [line for line in caplog.messages if "waiting for the schema registry" in line]
    assert len(waits) == 3
    assert "503" in waits[0]


async def test_whoever_waits_can_be_stopped() -> None:
    stop, waiting = asyncio.Event(), wait.Wait()
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        asked = asyncio.create_task(output_ids.awaited(settings(url), ["calibrated"], waiting, stop))
        while not waiting.seconds:  # noqa: ASYNC110 - it is no event
            await asyncio.sleep(0.01)
        stop.set()
        assert await asked is None
        assert waiting.seconds == 0


async def test_whoever_waits_is_told_what_the_registry_says() -> None:
    async def asked(registry: StandIn) -> Settings | None:
        async with registry.served() as url:
            return await output_ids.awaited(settings(url), ["calibrated"], wait.Wait(), asyncio.Event())

    found = await asked(StandIn())
    assert found is not None
    assert found.schema_ids == {"calibrated": 1}
    with pytest.raises(SettingsError, match="denied operation Write"):
        await asked(StandIn(read_only=True))


@pytest.mark.parametrize("said", [{"version": 1}, {"id": "7"}, {"id": -1}, {"id": 1 << 32}, {"id": True}])
async def test_an_answer_without_an_id_is_asked_again(said: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "FIRST_PAUSE", 0.01)
    registry, answers = StandIn(), [said]
    usual = registry.posted
    monkeypatch.setattr(registry, "posted", lambda *asked: (200, answers.pop()) if answers else usual(*asked))
    assert len(await known(registry)) == 2


def test_without_an_address_of_the_registry_nothing_starts() -> None:
    with pytest.raises(SettingsError, match="set TRUEUP_REGISTRY_URL"):
        Settings.from_env({"TRUEUP_OUTPUT_FORMAT": "avro"})
