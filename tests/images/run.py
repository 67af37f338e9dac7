"""``make images``: build the images and run them as production does, against a real Apache Kafka.

The Dockerfile is built as it is, on a stand-in for the Python image made of Debian's packages, or on ``--base``. The
worker then runs with a read-only root, no capability and no way to new ones, as a user without a name on the host, is
fed flights by the producer's image, and every answer is derived again by ``trueup audit`` in the worker's image.
Prints a line a finding; the status is 1 if one is not as it should be, and 0, with the reason, where podman is missing.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

from agents import __version__
from lab.broker import Broker, BrokerError
from lab.jvm import free_port
from lab.scrape import ScrapedSamples, get
from tests.images import pod, podman
from tests.images.base import EngineError
from tests.images.podman import CONFINED, Podman
from tests.images.trial import Trial, revision

WORKER, PRODUCER, STAND_IN = "localhost/trueup:trial", "localhost/trueup-producer:trial", "localhost/stand-in:trial"
HOST: Final = "127.0.0.1"
#: Flights of the first round; in the second they come again, and as many more.
FLIGHTS: Final = 2000
#: Fails where there is one, or the Python package that makes C of the engine.
NO_COMPILER: Final = "! command -v gcc cc c++ ld make && ! python -c 'import mypy' 2>/dev/null"


@dataclass(frozen=True)
class Container:
    """A worker's container, and the port of its metrics on this machine."""

    engine: Podman
    name: str
    port: int

    @classmethod
    def start(cls, engine: Podman, name: str, volume: str, brokers: str) -> Self:
        """Start one, confined, with its state on a volume."""
        port = free_port()
        variables = {
            "TRUEUP_BROKERS": brokers,
            "TRUEUP_INSTANCE_ID": "worker-0",
            # Shorter than its default: what is killed here is started again at once.
            "TRUEUP_SESSION_SECONDS": "10",
            "TRUEUP_REQUEST_SECONDS": "10",
            "TRUEUP_METRICS_HOST": HOST,
            "TRUEUP_METRICS_PORT": str(port),
        }
        options = [f"--env={name}={value}" for name, value in variables.items()]
        engine.run("run", "-d", f"--name={name}", *CONFINED, *options, f"--volume={volume}:/var/lib/trueup", WORKER)
        return cls(engine, name, port)

    def said(self, path: str) -> int:
        """Return the status that a path is answered with."""
        return get(HOST, self.port, path)[0]

    def shell(self, script: str) -> "subprocess.CompletedProcess[str]":
        """Run a script beside the worker."""
        return self.engine.run("exec", self.name, "sh", "-c", script, check=False)

    def forecasts(self) -> int:
        """Return how many forecasts it applied since it was started."""
        return int(ScrapedSamples.of(HOST, self.port).total("records_total", topic="forecasts"))

    def log(self) -> str:
        """Return what it printed."""
        done = self.engine.run("logs", self.name, check=False)
        return done.stdout + done.stderr

    def status(self) -> int:
        """Return its exit status."""
        return int(self.engine.run("inspect", "--format={{.State.ExitCode}}", self.name).stdout)


def main() -> int:
    """Build, run, tell; return the exit status."""
    parser = argparse.ArgumentParser(description="Build the images and run them against a real Kafka.")
    parser.add_argument("--base", help="image to build on, where a registry has it (default: a stand-in from Debian)")
    options = parser.parse_args()
    if reason := podman.missing():
        print(f"skipped: {reason}")
        return 0
    trial = Trial()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # told to end, it leaves nothing behind, as on Ctrl-C
    try:
        with podman.opened() as engine:
            _build(trial, engine, options.base)
            _inspect(trial, engine)
            with Broker() as broker:
                _serve(trial, engine, broker.bootstrap)
                _pod(trial, engine, broker.bootstrap)
    except (EngineError, BrokerError) as exc:
        trial.found(str(exc), holds=False)
    return trial.over()


def _build(trial: Trial, engine: Podman, base: str | None) -> None:
    if base is None:
        with trial.timed("a stand-in for the Python image"):
            engine.stand_in(STAND_IN)
    arguments = {"BASE": base or STAND_IN, "VERSION": __version__, "REVISION": revision()}
    for target, tag in (("worker", WORKER), ("producer", PRODUCER)):
        with trial.timed(f"{target} built"):
            engine.build(target, tag, arguments)


def _inspect(trial: Trial, engine: Podman) -> None:
    (image,) = json.loads(engine.run("image", "inspect", WORKER).stdout)
    config: dict[str, Any] = image["Config"]
    layers = json.loads(engine.run("image", "inspect", STAND_IN).stdout) if _exists(engine, STAND_IN) else []
    beside = f", {(image['Size'] - layers[0]['Size']) / 1e6:.0f} of them beside the base" if layers else ""
    trial.found("size, MB", holds=True, evidence=f"{image['Size'] / 1e6:.0f}{beside}")
    trial.found("its user is a number", config["User"] == "10001:10001", config["User"])
    labels = config["Labels"]
    trial.found("its version is labelled", labels["org.opencontainers.image.version"] == __version__)
    shell = ("run", "--rm", *CONFINED, "--entrypoint=sh")
    trial.found("no compiler in it", engine.run(*shell, WORKER, "-c", NO_COMPILER, check=False).returncode == 0)
    trial.found(
        "no compiler in the producer", engine.run(*shell, PRODUCER, "-c", NO_COMPILER, check=False).returncode == 0
    )
    version = engine.run("run", "--rm", *CONFINED, WORKER, "--version").stdout.strip()
    trial.found("it says its version", version == f"trueup {__version__}", version)


def _serve(trial: Trial, engine: Podman, brokers: str) -> None:
    for_all = ("run", "--rm", *CONFINED, f"--env=TRUEUP_BROKERS={brokers}")
    early = engine.run(*for_all, WORKER, check=False)
    trial.found("without topics it ends with 78", early.returncode == 78, early.returncode)
    made = engine.run(*for_all, WORKER, "topics", "create", "--partitions", "4", "--retention", "1d", check=False)
    trial.found("topics made", made.returncode == 0, made.stdout.splitlines()[-1:])
    engine.run("volume", "create", "state")

    with _worker(engine, "first", "state", brokers) as worker:
        if not trial.becomes("ready", lambda: worker.said("/readyz") == 200):
            print(worker.log())
            return
        _confinement(trial, worker)
        _play(trial, engine, brokers, FLIGHTS)
        trial.becomes("every forecast is answered", lambda: worker.forecasts() == FLIGHTS)
        check = engine.run("healthcheck", "run", worker.name, check=False)
        trial.found("the health check says alive", check.returncode == 0, check.stdout.strip())
        _audit(trial, engine, brokers)
        began = time.monotonic()
        engine.run("stop", "--time=60", worker.name)
        trial.found("SIGTERM ends it with 0", worker.status() == 0, f"after {time.monotonic() - began:.1f} s")
        trial.found("it said so", "stopped" in worker.log().splitlines()[-1])
        check = engine.run("healthcheck", "run", worker.name, check=False)
        trial.found("the health check of a stopped worker fails", check.returncode != 0)

    with _worker(engine, "again", "state", brokers) as worker:
        trial.becomes("on the same volume it is ready", lambda: worker.said("/readyz") == 200)
        restored = ScrapedSamples.of(HOST, worker.port).total("recovery_restored_rows_total")
        # The newest rows of each partition are read again, the flights are not.
        trial.found("and restored next to nothing", restored < FLIGHTS / 100, f"{restored:g} rows")
        _play(trial, engine, brokers, 2 * FLIGHTS)
        trial.becomes("flights come again, and new ones", lambda: worker.forecasts() == 2 * FLIGHTS)
        again = ScrapedSamples.of(HOST, worker.port).fates()["forecasts"]["duplicate"]
        trial.found("what came again is answered again", again == FLIGHTS, again)
        engine.run("kill", "--signal=KILL", worker.name)

    with _worker(engine, "killed", "state", brokers) as worker:
        trial.becomes("killed and started on the same volume it is ready", lambda: worker.said("/readyz") == 200)
        engine.run("kill", "--signal=KILL", worker.name)

    with _worker(engine, "moved", "empty", brokers) as worker:
        trial.becomes("on an empty volume it is ready", lambda: worker.said("/readyz") == 200)
        restored = ScrapedSamples.of(HOST, worker.port).total("recovery_restored_rows_total")
        trial.found("and restored its state", restored > FLIGHTS, f"{restored:g} rows")
        _audit(trial, engine, brokers)
        engine.run("stop", "--time=60", worker.name)
        trial.found("SIGTERM ends it with 0", worker.status() == 0, worker.status())


def _pod(trial: Trial, engine: Podman, brokers: str) -> None:
    """Play the StatefulSet's pod where the workers before left their state."""
    if reason := pod.missing():
        print(f"left out: the pod of Kubernetes; {reason}")
        return
    worker = Container(engine, "trueup-0-worker", free_port())
    engine.play(pod.pod(WORKER, brokers, worker.port))
    if not trial.becomes("the pod of the StatefulSet is ready", lambda: worker.said("/readyz") == 200):
        print(worker.log())
    _confinement(trial, worker)
    named = worker.shell("echo $TRUEUP_INSTANCE_ID").stdout.strip()
    trial.found("it is a member by the name of its pod", named == "trueup-0", named)
    trial.found("it reads its streams", worker.shell("test -s $TRUEUP_STREAMS").returncode == 0)
    engine.run("pod", "stop", "--time=60", "trueup-0")
    trial.found("SIGTERM ends it with 0", worker.status() == 0, worker.status())


def _confinement(trial: Trial, worker: Container) -> None:
    status = dict(line.split(":", 1) for line in worker.shell("cat /proc/1/status").stdout.splitlines() if ":" in line)
    facts = {name: status[name].split()[0] for name in ("Uid", "Gid", "CapEff", "CapBnd", "NoNewPrivs")}
    right = {"Uid": "10001", "Gid": "10001", "CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1"}
    trial.found("it runs as nobody in particular, with no right", facts == right, facts)
    denied = worker.shell("touch /app/x /venv/x /etc/x")
    trial.found("its root is read-only", denied.returncode != 0 and denied.stderr.count("Read-only") == 3)
    trial.found("its volume is not", worker.shell("ls /var/lib/trueup/* && touch /var/lib/trueup/x").returncode == 0)
    trial.found("its engine is compiled", "engine: compiled" in worker.log())
    trial.found("alive", worker.said("/healthz") == 200)


def _play(trial: Trial, engine: Podman, brokers: str, flights: int) -> None:
    options = (*CONFINED, f"--env=TRUEUP_BROKERS={brokers}")
    done = engine.run("run", "--rm", *options, PRODUCER, f"--rows={flights}", "--speed=1e9", check=False)
    trial.found("the producer played", done.returncode == 0, (done.stdout + done.stderr).splitlines()[-1:])


def _audit(trial: Trial, engine: Podman, brokers: str) -> None:
    done = engine.run("run", "--rm", *CONFINED, f"--env=TRUEUP_BROKERS={brokers}", WORKER, "audit", check=False)
    tail = (done.stdout + done.stderr).splitlines()[-1:] if done.returncode else ""
    trial.found("every answer is what the inputs give", done.returncode == 0, tail)


@contextmanager
def _worker(engine: Podman, name: str, volume: str, brokers: str) -> Iterator[Container]:
    container = Container.start(engine, name, volume, brokers)
    try:
        yield container
    except BaseException:
        print(container.log(), file=sys.stderr)
        raise
    finally:
        engine.run("rm", "--force", "--time=0", name, check=False)


def _exists(engine: Podman, image: str) -> bool:
    return engine.run("image", "exists", image, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
