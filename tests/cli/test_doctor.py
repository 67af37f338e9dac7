"""`trueup doctor` where there is no cluster, or nothing that it could look at."""

import json

import pytest

from cli import main


@pytest.mark.parametrize(
    ("settings", "status", "subject", "says"),
    [
        ({"TRUEUP_BROKERS": "127.0.0.1:1"}, 1, "brokers", "cannot reach 127.0.0.1:1: "),
        ({"TRUEUP_BROKER": "127.0.0.1:1"}, 78, "settings", "did you mean TRUEUP_BROKERS?"),
        (
            {"TRUEUP_SECURITY_PROTOCOL": "SSL", "TRUEUP_SSL_CAFILE": "/no.pem"},
            78,
            "settings",
            "cannot load TRUEUP_SSL_CAFILE=/no.pem",
        ),
    ],
)
def test_what_keeps_it_from_looking_further_is_said(
    settings: dict[str, str],
    status: int,
    subject: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert main.main(["doctor", "--json"]) == status
    *_, last = json.loads(capsys.readouterr().out)["findings"]
    assert (last["subject"], last["state"]) == (subject, "wrong")
    assert says in last["said"]
