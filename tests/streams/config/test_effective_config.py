"""The settings as ``config check`` shows them: all of them, no secret, and a hash of what workers must agree on."""

from pathlib import Path

import pytest

from streams.config import in_force
from streams.config.effective_config import HIDDEN, fingerprint, policies, shown
from streams.config.settings import Settings

SECRETS = {
    "TRUEUP_SECURITY_PROTOCOL": "SASL_SSL",
    "TRUEUP_SASL_USERNAME": "ann",
    "TRUEUP_SASL_PASSWORD": "hunter2",
    "TRUEUP_SSL_CERTFILE": "c.pem",
    "TRUEUP_SSL_KEY_PASSWORD": "hunter3",
    "TRUEUP_METRICS_USERNAME": "bob",
    "TRUEUP_METRICS_PASSWORD": "hunter4",
}


def test_every_setting_is_shown_and_no_secret() -> None:
    found = shown(Settings.from_env(SECRETS))
    described = {name for name, _, _ in Settings.described()}
    assert found.keys() == {name for name in described if not name.endswith("_FILE")}
    assert "hunter" not in repr(found)
    assert {name for name, value in found.items() if value == HIDDEN} == {n for n in SECRETS if n.endswith("PASSWORD")}
    assert (found["TRUEUP_SASL_USERNAME"], found["TRUEUP_METRICS_USERNAME"]) == ("ann", "bob")


@pytest.mark.parametrize(
    "change",
    [
        SECRETS,
        {"TRUEUP_APP_ID": "other", "TRUEUP_DATA_DIR": "x", "TRUEUP_INSTANCE_ID": "w-1", "TRUEUP_METRICS_PORT": "1"},
        {"TRUEUP_BATCH_RECORDS": "7", "TRUEUP_SESSION_SECONDS": "99"},
    ],
)
def test_what_decides_no_answer_does_not_change_the_hash(change: dict[str, str]) -> None:
    assert fingerprint(Settings.from_env(change)) == fingerprint(Settings())


@pytest.mark.parametrize("change", [{"TRUEUP_DEFAULT_CALIBRATOR": "platt"}, {"TRUEUP_RECORD_BYTES": "100"}])
def test_what_changes_answers_changes_the_hash(change: dict[str, str]) -> None:
    assert fingerprint(Settings.from_env(change)) != fingerprint(Settings())


def test_the_streams_file_is_part_of_the_hash_wherever_it_lies(tmp_path: Path) -> None:
    hashes = []
    for name, text in (
        ("a", '[streams.s]\nttl = "1d"'),
        ("b", '[streams.s]\nttl = "1d"'),
        ("c", '[streams.s]\nttl = "2d"'),
        ("d", '[streams.s]\nttl = "2d"\nbands = { high = 0.5 }'),
        ("e", '[streams.s]\nttl = "2d"\nbands = { high = 0.6 }'),
        ("f", '[streams.s]\nttl = "2d"\npoints = { base = 600, odds = 50, double = 20 }'),
    ):
        (tmp_path / name).write_text(text)
        hashes.append(fingerprint(Settings.from_env({"TRUEUP_STREAMS": str(tmp_path / name)})))
    assert hashes[0] == hashes[1]
    assert len(set(hashes[1:])) == len(hashes) - 1
    assert list(policies(Settings.from_env({"TRUEUP_STREAMS": str(tmp_path / "a")}))) == ["s", "*"]


def test_the_hash_is_that_of_journal_and_audit_and_behind_it_stands_what_intake_maps_by(tmp_path: Path) -> None:
    (file := tmp_path / "streams.toml").write_text(
        '[sources.scores]\ntopic = "scores"\nrole = "forecast"\nevent_id = "id"\nstream = "s"\np = "p"\n'
    )
    sourced = Settings.from_env({"TRUEUP_STREAMS": str(file)})
    worker, intake = fingerprint(sourced).split("-")
    assert fingerprint(Settings()) == worker == in_force.digest(in_force.described(sourced))[:8]
    assert intake == in_force.digest(in_force.mapping(sourced))[:8]
