"""`trueup doctor`: what keeps it from looking further, and the data directory; tests/e2e has the rest."""

from pathlib import Path
from typing import Any

import pytest

from tests.commands import Trueup


@pytest.mark.parametrize(
    ("settings", "status", "subject", "says"),
    [
        ({"BROKERS": "127.0.0.1:1"}, 1, "brokers", "cannot reach 127.0.0.1:1: "),
        ({"BROKER": "127.0.0.1:1"}, 78, "settings", "did you mean TRUEUP_BROKERS?"),
        (
            {"SECURITY_PROTOCOL": "SSL", "SSL_CAFILE": "/no.pem"},
            78,
            "settings",
            "cannot load TRUEUP_SSL_CAFILE=/no.pem",
        ),
    ],
)
def test_the_doctor_says_what_keeps_it_from_looking_further(
    settings: dict[str, str], status: int, subject: str, says: str, trueup: Trueup
) -> None:
    trueup.set(**settings)
    ended = trueup("doctor --json")
    *_, last = ended.json["findings"]
    assert (ended.status, last["subject"], last["state"]) == (status, subject, "wrong")
    assert says in last["said"]


@pytest.mark.parametrize(
    ("place", "state", "says"),
    [
        ("/proc/x", "wrong", "cannot write in /proc"),
        ("/proc/version/x", "wrong", "cannot write in /proc"),
        ("new", "ok", "GiB free"),
    ],
)
def test_the_data_directory_is_measured_and_one_that_cannot_be_made_is_no_full_disk(
    place: str, state: str, says: str, tmp_path: Path, trueup: Trueup
) -> None:
    trueup.set(BROKERS="127.0.0.1:1", DATA_DIR=tmp_path / place)
    found: list[dict[str, Any]] = trueup("doctor --json").json["findings"]
    (disk,) = [each for each in found if each["subject"] == "disk"]
    assert disk["state"] == state
    assert says in disk["said"]
    assert not list(tmp_path.iterdir())
