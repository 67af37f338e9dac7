"""Settings from the environment: each is read, and what is wrong is said with its name and what is allowed."""

import pickle
import ssl
from dataclasses import fields
from pathlib import Path
from typing import Any

import faust
import pytest

from state.events import Rejected
from state.fence import FORECASTS
from streams.config import effective_config, variables
from streams.config.settings import TOPICS, Settings, SettingsError
from streams.faust.credentials import credentials
from streams.kafka.permissions import needed, of_intake
from streams.kafka.security import Security
from streams.kafka.topics import wanted
from streams.records.decoding import KEY_IDS
from streams.records.encoding import encoded
from streams.records.limits import Limits
from tests.streams.fakes import Producer

#: Variables of each kind with a value that is not their default, and how it is read.
GIVEN: dict[str, tuple[str, Any]] = {
    "TRUEUP_BROKERS": ("kafka-1:9092, [::1]:9093", ("kafka-1:9092", "[::1]:9093")),
    "TRUEUP_APP_ID": (" fraud ", "fraud"),
    "TRUEUP_DATA_DIR": ("/var/lib/trueup", Path("/var/lib/trueup")),
    "TRUEUP_DEFAULT_CALIBRATOR": ("platt", "platt"),
    "TRUEUP_FORECASTS": ("f", "f"),
    "TRUEUP_METRICS_PORT": ("0", 0),
    "TRUEUP_PATIENCE_SECONDS": ("0", 0.0),
    "TRUEUP_COMPRESSION": ("lz4", "lz4"),
    "TRUEUP_LOG_LEVEL": ("debug", "DEBUG"),
}
COIN = ("TRUEUP_COIN_KEY", "TRUEUP_COIN_KEY_FILE")
SECURITY = {
    "TRUEUP_SECURITY_PROTOCOL": "SASL_SSL",
    "TRUEUP_SASL_MECHANISM": "PLAIN",
    "TRUEUP_SASL_USERNAME": "ann",
    "TRUEUP_SASL_PASSWORD": "hunter2",
    "TRUEUP_SSL_CAFILE": "ca.pem",
    "TRUEUP_SSL_CERTFILE": "cert.pem",
    "TRUEUP_SSL_KEYFILE": "key.pem",
    "TRUEUP_SSL_KEY_PASSWORD": "hunter3",
}
ACCESS = {
    "TRUEUP_METRICS_CERTFILE": "server.pem",
    "TRUEUP_METRICS_KEYFILE": "server-key.pem",
    "TRUEUP_METRICS_USERNAME": "prometheus",
    "TRUEUP_METRICS_PASSWORD": "hunter4",
    "TRUEUP_METRICS_NAMES": "metrics.example.com",
}


def refused(**environment: str) -> str:
    """Return what is said of an environment that is refused."""
    with pytest.raises(SettingsError) as caught:
        Settings.from_env(environment)
    return str(caught.value)


# -- what is read --------------------------------------------------------------------------------------------------


def test_an_empty_environment_gives_the_defaults() -> None:
    settings = Settings.from_env({"PATH": "/bin", "TRUEUP": "x", "TRUEUP_KAFKA_LIB": "/opt", "TRUEUP_COMPILED": "yes"})
    assert {f.name: getattr(settings, f.name) for f in fields(Settings) if f.name != "policies"} == {
        f.name: getattr(Settings(), f.name) for f in fields(Settings) if f.name != "policies"
    }
    assert settings.changelog == "trueup-state-changelog"
    assert settings.limits == Limits()


@pytest.mark.parametrize("variable", GIVEN)
def test_variables_are_read(variable: str) -> None:
    value, read = GIVEN[variable]
    found = getattr(Settings.from_env({variable: value}), variable.removeprefix("TRUEUP_").lower())
    assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize(("group", "given"), [("security", SECURITY), ("access", ACCESS)])
def test_the_variables_of_a_group_are_read(group: str, given: dict[str, str]) -> None:
    held = getattr(Settings.from_env(given), group)
    found = {name: getattr(held, each.name) for name, each in variables.variables_of(held).items()}
    assert {name: value for name, value in found.items() if value is not None} == given


def test_the_key_of_the_draws_is_read_and_kept_out_of_sight(tmp_path: Path) -> None:
    name, file = COIN
    (tmp_path / "coin").write_text("0123456789abcdef\n")
    keyed = Settings.from_env({file: str(tmp_path / "coin")})
    assert keyed.policies.coin == Settings.from_env({name: "0123456789abcdef"}).policies.coin == b"0123456789abcdef"
    assert Settings.from_env({}).policies.coin == b""
    assert effective_config.shown(keyed)[name] == effective_config.HIDDEN
    assert "0123456789abcdef" not in repr(keyed)
    other = Settings.from_env({name: "another key, as long"})
    assert len({effective_config.fingerprint(each) for each in (keyed, other, Settings())}) == 3


def test_all_topics_of_its_own_begin_with_the_prefix(tmp_path: Path) -> None:
    (file := tmp_path / "streams.toml").write_text(
        '[sources.scores]\ntopic = "scores"\nrole = "forecast"\nevent_id = "id"\nstream = "s"\np = "p"\n'
        '[sources.labels]\ntopic = "labels"\nrole = "outcome"\nevent_id = "id"\ny = "y"\n'
    )
    given = {"TRUEUP_STREAMS": str(file), "TRUEUP_TOPIC_PREFIX": "eu.", "TRUEUP_APP_ID": "b", "TRUEUP_MAPS": "eu.maps"}
    settings = Settings.from_env(given)
    grants = [grant for stage in settings.stages for grant in needed(stage)] + of_intake(settings)
    named = {grant.name for grant in grants if grant.kind == "topic"}
    assert {name for name in named if not name.startswith("eu.")} == {"scores", "labels", "trueup-owners"}
    assert {settings.maps, settings.changelog, settings.router.configurations} <= named
    assert "eu.b-" in {grant.name for grant in grants if grant.prefixed}
    # What `config check` shows may be set again, and what Kafka does not take is refused.
    shown = {name: value for name, value in effective_config.shown(settings).items() if value}
    again = Settings.from_env(shown)
    assert all(getattr(again, topic) == getattr(settings, topic) for topic in TOPICS)
    with pytest.raises(SettingsError, match="TRUEUP_TOPIC_PREFIX='eu/'"):
        Settings.from_env({"TRUEUP_TOPIC_PREFIX": "eu/"})
    with pytest.raises(SettingsError, match="longer than the 249 characters"):
        Settings.from_env({"TRUEUP_TOPIC_PREFIX": "p" * 60, "TRUEUP_APP_ID": "a" * 180})


def test_a_topic_that_somebody_names_gets_the_prefix_if_it_is_one_of_its_own() -> None:
    of = Settings.from_env({"TRUEUP_TOPIC_PREFIX": "test."})
    given = ("forecasts", "test.forecasts", "calibrated", "trueup-journal", "scores.v3")
    own = ["test.forecasts", "test.forecasts", "test.calibrated", "test.trueup-journal", "scores.v3"]
    assert [of.named(topic) for topic in given] == own


def test_input_that_a_source_names_is_no_topic_of_its_own(tmp_path: Path) -> None:
    (file := tmp_path / "streams.toml").write_text(
        '[sources.scores]\ntopic = "scores"\nrole = "forecast"\nevent_id = "id"\nstream = "s"\np = "p"\n'
    )
    given = {"TRUEUP_STREAMS": str(file), "TRUEUP_TOPIC_PREFIX": "eu.", "TRUEUP_FORECASTS": "scores"}
    settings = Settings.from_env(given)
    assert (settings.forecasts, settings.outcomes) == ("scores", "eu.outcomes")
    assert settings.direct is not None


def test_the_variables_described_are_read_and_have_the_defaults_described() -> None:
    described = {name: default for name, _, default in Settings.described()}
    assert {*GIVEN, *SECURITY, *ACCESS, *COIN} < described.keys()
    again = Settings.from_env({name: default for name, default in described.items() if default != "none"})
    assert effective_config.shown(again) == effective_config.shown(Settings())
    assert all(help_ and default for _, help_, default in Settings.described())


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        *(("TRUEUP_BROKERS", bad, "host:port") for bad in ("", "kafka", "kafka:", ":9092", "kafka:x", "a:1,,b:2")),
        ("TRUEUP_BROKERS", "kafka://a:9092", "host:port"),
        ("TRUEUP_BROKERS", "a:1,b:65536", "b:65536 has no port between 1 and 65535"),
        *(("TRUEUP_BROKERS", bad, "cannot be looked up") for bad in ("a..b:1", "k" * 64 + ":1", "\udc80:1")),
        ("TRUEUP_METRICS_HOST", "\udc80", "cannot be looked up"),
        ("TRUEUP_BROKERS", "a:\N{SUPERSCRIPT TWO}", "host:port"),
        ("TRUEUP_METRICS_PORT", "\N{SUPERSCRIPT TWO}", "whole number"),
        *((name, "", "empty") for name in ("TRUEUP_APP_ID", "TRUEUP_INSTANCE_ID", "TRUEUP_FORECASTS")),
        ("TRUEUP_CALIBRATED", "  ", "empty"),
        ("TRUEUP_METRICS_PORT", "65536", "between 0 and 65535"),
        ("TRUEUP_METRICS_PORT", "http", "http"),
        ("TRUEUP_RECORD_BYTES", "63", "between 64 and 800000"),
        ("TRUEUP_AHEAD_SECONDS", "nan", "between 0 and 1e+09"),
        ("TRUEUP_MEMORY_BYTES", "1Gi", "must be a whole number"),
        ("TRUEUP_COMPRESSION", "brotli", "must be one of none, gzip, snappy, lz4, zstd"),
        ("TRUEUP_SESSION_SECONDS", "inf", "between 1 and 300"),
        ("TRUEUP_REQUEST_SECONDS", "0.4", "between 0.5 and 300"),
        ("TRUEUP_METRICS_PORT", "9464.0", "whole number"),
        ("TRUEUP_LOG_LEVEL", "chatty", "DEBUG, INFO, WARNING, ERROR"),
        ("TRUEUP_DATA_LOSS", "ignore", "stop, continue"),
        ("TRUEUP_OUTPUT_FORMAT", "xml", "must be one of json, avro"),
    ],
)
def test_a_bad_value_is_refused_with_its_variable_and_what_is_allowed(variable: str, value: str, allowed: str) -> None:
    said = refused(**{variable: value})
    assert said.startswith(f"{variable}={value!r}")
    assert allowed in said


@pytest.mark.parametrize(
    ("variable", "topic", "taken"),
    [
        ("TRUEUP_FORECASTS", "calibrated", "TRUEUP_CALIBRATED=calibrated is TRUEUP_FORECASTS, too"),
        ("TRUEUP_RESOLVED", "calibrated", "TRUEUP_RESOLVED=calibrated is TRUEUP_CALIBRATED, too"),
        ("TRUEUP_OUTCOMES", "forecasts", "TRUEUP_OUTCOMES=forecasts is TRUEUP_FORECASTS, too"),
        ("TRUEUP_MAPS", "trueup-owners", "TRUEUP_OWNERS=trueup-owners is TRUEUP_MAPS, too"),
        ("TRUEUP_MAPS", "trueup-journal", "TRUEUP_MAPS=trueup-journal is written by TRUEUP_APP_ID=trueup, too"),
        ("TRUEUP_FORECASTS", "trueup-routes", "TRUEUP_FORECASTS=trueup-routes is written by TRUEUP_APP_ID=trueup"),
    ],
)
def test_one_topic_in_two_places_is_refused_with_both(variable: str, topic: str, taken: str) -> None:
    assert refused(**{variable: topic}).startswith(taken)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"closed = 1\nclosed = 2", b"[streams.a]\ncalibrator = 'plat'"])
def test_a_bad_streams_file_is_refused_by_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "streams.toml"
    path.write_bytes(content)
    assert str(path) in refused(TRUEUP_STREAMS=str(path))


@pytest.mark.parametrize("batch_bytes", [900_000, 1_800_000])
def test_the_longest_letter_of_settings_that_are_accepted_fits_a_batch(batch_bytes: int) -> None:
    longest = min((batch_bytes - 4096) // 4, 600_000)
    settings = Settings(letter_bytes=longest, batch_bytes=batch_bytes)
    letter = Rejected(2**62, b"k" * longest, b"v" * longest, FORECASTS, "unknown_stream")
    assert len(letter.key or b"") > KEY_IDS * settings.id_bytes  # such a key is what made it a letter
    ((key, value, timestamp, _),) = encoded([letter], settings, 999)["dead-letters"]
    batch = Producer(batch_bytes).batch()
    batch.append(key=key, value=value, timestamp=timestamp)  # aiokafka takes the first record at any size
    (topic,) = (topic for topic in wanted(settings) if topic.name == settings.dead_letters)
    assert batch.size() <= max(topic.batch_bytes, 1_048_588)


# -- security ------------------------------------------------------------------------------------------------------


def test_secrets_are_read_from_files_without_the_last_newline(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(" hunter2\n")
    (tmp_path / "key").write_text("hunter3")
    environment = {name: value for name, value in SECURITY.items() if "PASSWORD" not in name}
    security = Settings.from_env(
        {
            **environment,
            "TRUEUP_SASL_PASSWORD_FILE": str(tmp_path / "password"),
            "TRUEUP_SSL_KEY_PASSWORD_FILE": str(tmp_path / "key"),
        }
    ).security
    assert (security.password, security.key_password) == (" hunter2", "hunter3")


NOT_USED = [
    *(("PLAINTEXT", name) for name in ("SASL_USERNAME", "SASL_PASSWORD", "SSL_CAFILE", "SSL_CERTFILE", "SSL_KEYFILE")),
    ("SSL", "SASL_USERNAME"),
    ("SSL", "SASL_PASSWORD"),
]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"TRUEUP_SASL_PASWORD": "hunter2"}, "is not a setting of trueup; did you mean TRUEUP_SASL_PASSWORD? "),
        ({"TRUEUP_BROKERS": "ann:hunter2@kafka-1:9092"}, "TRUEUP_BROKERS: must be host:port"),
        ({"TRUEUP_COIN_KEY": "hunter789abcdef"}, "TRUEUP_COIN_KEY must have 16 to 64 bytes"),
        ({"TRUEUP_COIN_KEY": "hunter" + "x" * 59}, "TRUEUP_COIN_KEY must have 16 to 64 bytes"),
        *(
            ({"TRUEUP_LETTER_BYTES": "2000", "TRUEUP_BATCH_BYTES": "10000"}, f"TRUEUP_{named}")
            for named in ("LETTER_BYTES=2000", "BATCH_BYTES=10000")
        ),
        *(
            (SECURITY | {f"{name}_FILE": __file__}, f"{name}_FILE is set, and so is {name}")
            for name in ("TRUEUP_SASL_PASSWORD", "TRUEUP_SSL_KEY_PASSWORD")
        ),
        ({"TRUEUP_COIN_KEY_FILE": "/no/where"}, "cannot read /no/where"),
        (SECURITY | {"TRUEUP_SECURITY_PROTOCOL": "TLS"}, "TRUEUP_SECURITY_PROTOCOL must be one of"),
        (SECURITY | {"TRUEUP_SECURITY_PROTOCOL": "SASL_PLAINTEXT"}, "SASL_SSL"),
        (SECURITY | {"TRUEUP_SASL_MECHANISM": "MD5"}, "TRUEUP_SASL_MECHANISM must be one of"),
        (SECURITY | {"TRUEUP_SASL_USERNAME": ""}, "TRUEUP_SASL_USERNAME and TRUEUP_SASL_PASSWORD"),
        (SECURITY | {"TRUEUP_SASL_PASSWORD": ""}, "TRUEUP_SASL_USERNAME and TRUEUP_SASL_PASSWORD"),
        (SECURITY | {"TRUEUP_SSL_CERTFILE": ""}, "TRUEUP_SSL_CERTFILE is not"),
        *(
            ({"TRUEUP_SECURITY_PROTOCOL": protocol, f"TRUEUP_{name}": "x"}, f"TRUEUP_SECURITY_PROTOCOL is {protocol}")
            for protocol, name in NOT_USED
        ),
    ],
)
def test_what_cannot_be_together_is_refused_and_no_secret_is_shown(given: dict[str, str], said: str) -> None:
    told = refused(**given)
    assert said in told
    assert "hunter" not in told


def test_tls_verifies_certificates_and_names() -> None:
    security = Security(protocol="SSL")
    context = security.context
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert security.client_options() == {"security_protocol": "SSL", "ssl_context": context}
    said = credentials(security)
    assert isinstance(said, faust.SSLCredentials)
    assert said.context is context


def test_another_process_makes_a_tls_context_of_its_own() -> None:
    security = Security(protocol="SSL")
    assert security.context is not None
    sent = pickle.loads(pickle.dumps(security))  # noqa: S301 - its own
    assert sent == security
    assert sent.context is not security.context


def test_sasl_goes_over_tls_for_both_kinds_of_client() -> None:
    security = Security(protocol="SASL_SSL", mechanism="PLAIN", username="ann", password="hunter2")  # noqa: S106
    assert security.client_options() == {
        "security_protocol": "SASL_SSL",
        "ssl_context": security.context,
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "ann",
        "sasl_plain_password": "hunter2",
    }
    said = credentials(security)
    assert isinstance(said, faust.SASLCredentials)
    assert (said.username, said.password, said.ssl_context) == ("ann", "hunter2", security.context)


@pytest.mark.parametrize("field", ["cafile", "certfile"])
def test_tls_files_that_cannot_be_loaded_are_refused(tmp_path: Path, field: str) -> None:
    (tmp_path / "not.pem").write_text("not a certificate")
    for path in ("/nowhere/x.pem", str(tmp_path / "not.pem")):
        with pytest.raises(ValueError, match=f"cannot load TRUEUP_SSL_{field.upper()}="):
            _ = Security(protocol="SSL", **{field: path}).context


def test_a_batch_that_has_no_room_for_the_default_calibrator_says_how_large_it_must_be() -> None:
    said = refused(TRUEUP_LETTER_BYTES="1000", TRUEUP_BATCH_BYTES="12000")
    assert said.startswith("streams that no pattern matches: a row of prudent+certified grows to ")
    least = said.partition("must be at least ")[2].partition(",")[0]
    Settings.from_env({"TRUEUP_LETTER_BYTES": "1000", "TRUEUP_BATCH_BYTES": least})
    less = str(int(least) - 1)
    assert f"TRUEUP_BATCH_BYTES must be at least {least}" in refused(
        TRUEUP_LETTER_BYTES="1000", TRUEUP_BATCH_BYTES=less
    )
