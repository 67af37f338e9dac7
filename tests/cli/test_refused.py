"""What a command refuses before it does anything, or asks a broker."""

import pytest

from agents.worker import MISCONFIGURED
from tests.commands import Trueup


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("load", "load needs --table FILE, or --forecasts FILE and --outcomes FILE"),
        ("load --id id", "--id is of a table"),
        ("load --table x.csv --score p --label y --time t", "load needs --id"),
        ("forget --key=", "--key is empty"),
        ("forget --scope shop", "name events, or --key KEY"),
        ("letters --dry-run", "are of 'trueup letters send'"),
        ("letters --last soon", "--last: 'soon' is not a duration"),
        ("topics create --retention 1w", "'1w'"),
    ],
)
def test_options_that_lack_or_mean_nothing_are_said(command: str, said: str, trueup: Trueup) -> None:
    ended = trueup(command)
    assert ended.status == MISCONFIGURED
    assert said in ended.err


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
