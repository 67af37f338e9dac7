"""``make compose``: run docker-compose.yml as it stands, with the demo's producer, and look whether all of it works.

Then again with deploy/compose/sources.yml laid over it: the flights come through intake and router.

Images are stood in for by Debian's packages and the jars of `make jars`, so that no registry is needed; Grafana is left
out. With ``--registry`` they are those that the file names. Ports are any that are free.
Prints a line a finding; the status is 1 if one is not as it should be, and 0, with the reason, where Docker is missing.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

from lab.broker import KAFKA
from lab.jvm import free_port
from lab.scrape import ScrapedSamples, get
from tests.images import docker
from tests.images.docker import Docker, EngineError
from tests.images.trial import Trial

HOST: Final = "127.0.0.1"
PROJECT: Final = "trueup-trial"
STAND_IN: Final = "trueup-stand-in"
WORKERS: Final = ("worker-1", "worker-2")
#: Flights that are to be answered before anything is killed: some ten seconds of them.
ANSWERED: Final = 1000
#: Silence after which a worker's partitions move, s: all that is stopped is back within it, also on a machine that has
#: other work. Otherwise the worker that is back first would take all partitions, and restore those of the other.
SESSION_SECONDS: Final = 300
#: Fails where there is one, or the Python package that makes C of the engine.
NO_COMPILER: Final = "! command -v gcc cc c++ ld make && ! python -c 'import mypy' 2>/dev/null"
#: Images of Kafka and Prometheus out of Debian's packages. Kafka's takes its settings from variables, as Apache's does.
DOCKERFILE: Final = f"""\
FROM {STAND_IN} AS kafka
RUN apt-get update && apt-get install --yes --no-install-recommends openjdk-17-jre-headless
RUN useradd --uid 1000 kafka && install --directory --owner=1000 /var/lib/kafka/data /run/kafka
COPY lib /opt/kafka/libs
COPY kafka-broker-api-versions.sh start.sh /opt/kafka/bin/
USER 1000
ENTRYPOINT ["/opt/kafka/bin/start.sh"]

FROM {STAND_IN} AS prometheus
RUN apt-get update && apt-get install --yes --no-install-recommends prometheus wget \\
 && install --directory --owner=65534 /prometheus
USER 65534
ENTRYPOINT ["/usr/bin/prometheus"]
"""
SCRIPTS: Final = {
    "start.sh": """\
#!/bin/sh
set -e
env | grep -E '^KAFKA_' | grep -v HEAP_OPTS | while IFS='=' read -r name value; do
    echo "$(echo "${name#KAFKA_}" | tr 'A-Z_' 'a-z.')=$value"
done > /run/kafka/server.properties
java -cp '/opt/kafka/libs/*' kafka.tools.StorageTool format --ignore-formatted \\
    -t 4L6g3nShT-eMCtK--X86sw -c /run/kafka/server.properties
exec java $KAFKA_HEAP_OPTS -cp '/opt/kafka/libs/*' kafka.Kafka /run/kafka/server.properties
""",
    # The jars of the tests lack the command: who listens is ready.
    "kafka-broker-api-versions.sh": """\
#!/usr/bin/python3
import socket, sys
host, port = sys.argv[2].split(":")
socket.create_connection((host, int(port)), 5)
""",
}


class Compose:
    """The project of a trial.

    ``directory``: for the file that overrides.
    ``stand_ins``: whether images are stood in for.
    ``layers``: files that are laid over docker-compose.yml.
    """

    def __init__(self, engine: Docker, directory: Path, *, stand_ins: bool, layers: Sequence[str] = ()) -> None:
        self._engine = engine
        self.ports = {name: free_port() for name in (*WORKERS, "prometheus")}
        file = directory / "override.yml"
        file.write_text(_override(self.ports, stand_ins=stand_ins))
        files = [f"--file={each}" for each in ("docker-compose.yml", *layers, file)]
        self._options = ("compose", f"--project-name={PROJECT}", *files, "--profile=demo")

    def run(self, *arguments: str) -> str:
        """Run a command of compose and return what it printed; raises `EngineError` if it fails."""
        return self._engine.run(*self._options, *arguments).stdout

    def done(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of compose that may fail."""
        return self._engine.run(*self._options, *arguments, check=False)

    def container(self, service: str) -> dict[str, Any]:
        """Return what the engine knows of a service's container; empty while there is none."""
        ids = self._engine.run(*self._options, "ps", "--all", "--quiet", service).stdout.split()
        return dict(json.loads(self._engine.run("inspect", ids[0]).stdout)[0]) if ids else {}

    def healthy(self, service: str) -> bool:
        """Whether a service's container says that it is healthy."""
        return bool(self.container(service).get("State", {}).get("Health", {}).get("Status") == "healthy")

    def left(self) -> list[str]:
        """Return the containers, volumes and networks that this project has."""
        mine = f"label=com.docker.compose.project={PROJECT}"
        kinds = ("container", "ls", "--all"), ("volume", "ls"), ("network", "ls")
        return [each for kind in kinds for each in self._engine.run(*kind, "--quiet", "--filter", mine).stdout.split()]

    def asked(self, path: str, **query: str) -> Any:
        """Return what Prometheus answers."""
        url = f"http://{HOST}:{self.ports['prometheus']}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]


def _override(ports: dict[str, int], *, stand_ins: bool) -> str:
    """Return what is other than in docker-compose.yml: ports, and images that are stood in for."""
    services: dict[str, Any] = {name: {"ports": [f"{HOST}:{port}:{_inner(name)}"]} for name, port in ports.items()}
    for name in WORKERS:
        services[name]["environment"] = {"TRUEUP_SESSION_SECONDS": SESSION_SECONDS}
    services["kafka"] = {"ports": []}
    if stand_ins:
        for name in ("kafka", "prometheus"):
            services[name] |= {"image": f"{STAND_IN}-{name}"}
        built = {"args": {"BASE": STAND_IN, "QUICK": "--quick"}, "network": "host"}
        for name in ("topics", *WORKERS, "producer"):
            services.setdefault(name, {})["build"] = built
        services["grafana"] = {"profiles": ["grafana"]}
    text = yaml.safe_dump({"services": services})
    return text.replace("ports:", "ports: !override")


def _inner(service: str) -> int:
    return 9090 if service == "prometheus" else 9464


def main() -> int:
    """Run, look, tell; return the exit status."""
    parser = argparse.ArgumentParser(description="Run docker-compose.yml and look whether all of it works.")
    parser.add_argument("--registry", action="store_true", help="pull the images that the file names")
    options = parser.parse_args()
    if reason := docker.missing():
        print(f"skipped: {reason}")
        return 0
    trial = Trial()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # told to end, it leaves nothing behind, as on Ctrl-C
    try:
        with docker.opened() as engine, TemporaryDirectory(prefix="trueup-compose-") as directory:
            if not options.registry:
                with trial.timed("stand-ins for the images of Python, Kafka and Prometheus"):
                    _stand_ins(engine, Path(directory))
            for what, layers in ((_serve, ()), (_sourced, ("deploy/compose/sources.yml",))):
                compose = Compose(engine, Path(directory), stand_ins=not options.registry, layers=layers)
                try:
                    what(trial, compose)
                finally:
                    compose.done("down", "--volumes", "--timeout=60")
                trial.found("down --volumes leaves nothing", not compose.left(), compose.left() or "")
    except EngineError as exc:
        trial.found(str(exc), holds=False)
    return trial.over()


def _stand_ins(engine: Docker, directory: Path) -> None:
    engine.stand_in(STAND_IN)
    context = directory / "context"
    shutil.copytree(KAFKA / "lib", context / "lib")
    (context / "Dockerfile").write_text(DOCKERFILE)
    for name, script in SCRIPTS.items():
        (context / name).write_text(script)
        (context / name).chmod(0o755)
    for target in ("kafka", "prometheus"):
        engine.run("build", "--network=host", f"--target={target}", f"--tag={STAND_IN}-{target}", str(context))


def _serve(trial: Trial, compose: Compose) -> None:
    with trial.timed("up --build"):
        compose.run("build", "topics")  # the classic builder would build the image of each worker at the same time
        compose.run("up", "--build", "--detach")
    _answering(trial, compose)
    _confined(trial, compose)
    _monitored(trial, compose)
    _killed(trial, compose)
    compose.run("stop", "--timeout=10", "producer")
    _kept(trial, compose)
    _audited(trial, compose)


def _sourced(trial: Trial, compose: Compose) -> None:
    """Look at sources of other keys: every worker's container runs intake and router, too."""
    if not _started(trial, compose, "up, with sources of other keys"):
        return
    _answering(trial, compose)
    trial.becomes("workers, intakes, routers and Prometheus are targets that are up", lambda: _up(compose, 7))
    compose.run("stop", "--timeout=10", "producer")
    _audited(trial, compose)


def _started(trial: Trial, compose: Compose, claim: str, *services: str) -> bool:
    """Start services, all if none is named; if one does not come up, print what its workers logged."""
    up = compose.done("up", "--detach", *services)
    if not trial.found(claim, up.returncode == 0, up.stderr.splitlines()[-1:] if up.returncode else ""):
        for service in WORKERS:
            print(compose.run("logs", "--tail=40", service))
            print(json.dumps(compose.container(service).get("State"), indent=1))
        return False
    return True


def _answering(trial: Trial, compose: Compose) -> None:
    for service in ("kafka", *WORKERS, "prometheus"):
        _healthy(trial, compose, service)
    trial.found("the topics are made, once", compose.container("topics")["State"]["ExitCode"] == 0)
    trial.becomes(f"{ANSWERED} flights are answered", lambda: _forecasts(compose) >= ANSWERED)


def _confined(trial: Trial, compose: Compose) -> None:
    """Look at what runs in the images of worker and producer, and at what it may do."""

    def shell(service: str, script: str) -> "subprocess.CompletedProcess[str]":
        return compose.done("exec", "-T", service, "sh", "-c", script)

    for service in ("worker-1", "producer"):
        user = compose.container(service)["Config"]["User"]
        trial.found(f"the user of {service} is a number", user == "10001:10001", user)
        trial.found(f"no compiler in {service}", shell(service, NO_COMPILER).returncode == 0)
    said = shell("worker-1", "cat /proc/1/status").stdout.splitlines()
    status = dict(line.split(":", 1) for line in said if ":" in line)
    facts = {name: status[name].split()[0] for name in ("Uid", "Gid", "CapEff", "CapBnd", "NoNewPrivs")}
    right = {"Uid": "10001", "Gid": "10001", "CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1"}
    trial.found("it runs as nobody in particular, with no right", facts == right, facts)
    denied = shell("worker-1", "touch /app/x /venv/x /etc/x")
    trial.found("its root is read-only", denied.returncode != 0 and denied.stderr.count("Read-only") == 3)
    trial.found("its engine is compiled", "engine: compiled" in compose.run("logs", "worker-1"))


def _audited(trial: Trial, compose: Compose) -> None:
    audit = compose.done("run", "--rm", "--no-deps", "topics", "audit")
    tail = (audit.stdout + audit.stderr).splitlines()[-3:]
    trial.found("every answer is what the inputs give", audit.returncode == 0, tail if audit.returncode else "")


def _healthy(trial: Trial, compose: Compose, service: str) -> None:
    if not trial.becomes(f"{service} is healthy", lambda: compose.healthy(service)):
        print(compose.run("logs", "--tail=30", service))


def _forecasts(compose: Compose) -> float:
    found = (ScrapedSamples.of(HOST, compose.ports[service]) for service in WORKERS)
    return sum(each.total("records_total", topic="forecasts") for each in found)


def _monitored(trial: Trial, compose: Compose) -> None:
    """Look at targets, rules and series of Prometheus."""

    def evaluated() -> bool:
        rules = [rule for group in compose.asked("rules")["groups"] for rule in group["rules"]]
        never = [rule["name"] for rule in rules if rule["lastEvaluation"].startswith("0001")]
        return bool(rules) and not never

    trial.becomes("both workers and Prometheus are targets that are up", lambda: _up(compose, 3))
    trial.becomes("every rule is evaluated", evaluated)
    rules = [rule for group in compose.asked("rules")["groups"] for rule in group["rules"]]
    wrong = [f"{rule['name']}: {rule.get('lastError')}" for rule in rules if rule["health"] != "ok"]
    trial.found("and none fails", not wrong, wrong or f"{len(rules)} rules")
    firing = sorted(
        {each["labels"]["alertname"] for each in compose.asked("alerts")["alerts"] if each["state"] == "firing"}
    )
    trial.found("no alert fires", not firing, firing or "")


def _up(compose: Compose, targets: int) -> bool:
    """Whether Prometheus has so many targets, and all are up."""
    found = [each["health"] for each in compose.asked("targets")["activeTargets"]]
    return len(found) == targets and set(found) == {"up"}


def _killed(trial: Trial, compose: Compose) -> None:
    """Kill a worker as a fault does: what Docker kills itself, it does not start again."""
    before = compose.container("worker-1")
    os.kill(before["State"]["Pid"], signal.SIGKILL)

    def again() -> bool:
        return compose.container("worker-1")["RestartCount"] > before["RestartCount"] and compose.healthy("worker-1")

    trial.becomes("a worker that is killed is started again by its policy", again)
    trial.becomes("and serves", lambda: get(HOST, compose.ports["worker-1"], "/readyz")[0] == 200)


def _kept(trial: Trial, compose: Compose) -> None:
    """Stop the workers, take all containers down and start them again on the volumes."""
    compose.run("stop", "--timeout=60", *WORKERS)
    ended = [compose.container(service)["State"]["ExitCode"] for service in WORKERS]
    trial.found("SIGTERM ends the workers with 0", ended == [0, 0], ended)
    compose.run("down", "--timeout=60")
    if not _started(trial, compose, "up again on the volumes", *WORKERS, "prometheus"):
        return
    for service in WORKERS:
        _healthy(trial, compose, service)
        restored = ScrapedSamples.of(HOST, compose.ports[service]).total("recovery_restored_rows_total")
        trial.found("and restored next to nothing", restored < ANSWERED / 10, f"{restored:g} rows")


if __name__ == "__main__":
    sys.exit(main())
