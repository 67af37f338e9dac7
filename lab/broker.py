"""A real Apache Kafka on this machine: one JVM on loopback, for development, the demo and the tests.

The server comes from Maven Central, see `jars`. Its configuration is ``deploy/kafka/server.properties``. The broker
ends when the process that started it ends.
"""

import hashlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from lab.jvm import HOST, START_SECONDS, JavaServer, free_port

_CHECKOUT: Final = Path(__file__).resolve().parents[1]
#: Whether this is a checkout; and the root of data files: the checkout, or `share/trueup` of an installed trueup.
IN_CHECKOUT: Final = (_CHECKOUT / "deploy" / "maven" / "jars").exists()
SHARE: Final = _CHECKOUT if IN_CHECKOUT else Path(sys.prefix) / "share" / "trueup"
#: Commands that `_fetch` runs, besides bash, and the packages that contain them.
_PROGRAMS: Final = {"javac": "a JDK 17 or newer", "mvn": "Maven"}
KAFKA: Final = SHARE / "deploy" / "kafka"
#: Files beside the jars: classes as a JVM has loaded them, and the features of a new cluster, see `archive`.
CLASSES: Final = ".classes.jsa"
FEATURES: Final = "bootstrap.checkpoint"


class BrokerError(RuntimeError):
    """Kafka cannot run here; the message says why and what to do."""


class Seat(NamedTuple):
    """A broker's place in a cluster. Every broker is also a controller, and all controllers vote."""

    #: Id of the cluster: 22 characters of base64.
    cluster: str
    #: Number of the broker, from 1.
    node: int
    #: Ports of the controllers of brokers 1, 2, ... on this machine.
    controllers: tuple[int, ...]


class Broker(JavaServer):
    """Apache Kafka in KRaft mode: started on entering the context or by `start`, stopped on leaving it or by `stop`.

    ``data_dir``: directory of records, settings and log, which is kept over restarts. `None`: a temporary one that
    `stop` removes.
    ``port``: port for clients; `None`: any free one. It stays the same over restarts of this object.
    ``heap``: heap size of the JVM, in the JVM's notation.
    ``properties``: lines that override those of ``server.properties``, such as further listeners or an authorizer.
    ``users``: SCRAM passwords by user name; set at the first start.
    ``fronts``: ports of proxies on this machine. The broker advertises them to clients that connect to its ports in
    `backs`.
    ``seat``: its place in a cluster of several brokers; `None`: it is the only one.
    ``java``: more options for the JVM.
    """

    name, said, error = "broker", "Kafka", BrokerError

    def __init__(
        self,
        data_dir: Path | None = None,
        port: int | None = None,
        heap: str = "512m",
        properties: str = "",
        users: Mapping[str, str] | None = None,
        fronts: Sequence[int] = (),
        seat: Seat | None = None,
        java: Sequence[str] = (),
    ) -> None:
        super().__init__(data_dir)
        self._heap = heap
        self._options = tuple(java)
        self._properties = properties
        self._users = dict(users or {})
        self._seat = seat or Seat(cluster_id(), 1, (free_port(port),))
        self._controller = self._seat.controllers[self._seat.node - 1]
        self._port = port or free_port(*self._seat.controllers)
        #: ``host:port`` for clients.
        self.bootstrap = f"{HOST}:{self._port}"
        self._fronts = tuple(fronts)
        #: Addresses to which the proxies must connect, in their order.
        self.backs = tuple(free_port(self._port, *self._seat.controllers) for _ in fronts)

    @property
    def pid(self) -> int:
        """The process id of the JVM."""
        return self._running().pid

    def start(self) -> None:
        """Format the directory if it is new, start the JVM, and return when it answers a metadata request.

        Raises BrokerError if Java or the jars are missing, if the port is taken, or if the JVM died or was not ready in
        `START_SECONDS`.
        """
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Do the first half of `start`, without waiting: in a cluster, a broker is ready only when others run.

        Raises BrokerError if Java or the jars are missing, or the port is taken.
        """
        if self.alive:
            raise BrokerError(f"the broker already runs at {self.bootstrap}")
        try:
            self._format_and_launch()
        except BaseException:
            self.stop()
            raise

    def wait(self) -> None:
        """Do the second half of `start`: return when the broker answers a metadata request.

        Raises BrokerError if the JVM died, or was not ready in `START_SECONDS`.
        """
        self._await(lambda: answers(self._port))

    def pause(self) -> None:
        """Freeze the JVM: connections stay open and nothing answers. Return when every thread has stopped."""
        jvm = self._running()
        jvm.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, jvm.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Continue a paused JVM."""
        self._running().send_signal(signal.SIGCONT)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or not self.alive:
            raise BrokerError("the broker is not running")
        return self._process

    def _format_and_launch(self) -> None:
        (self.directory / "tmp").mkdir(parents=True, exist_ok=True)
        settings = self.directory / "server.properties"
        names = [f"FRONT{i}" for i in range(len(self._fronts))]
        listeners = "".join(f",{name}://{HOST}:{port}" for name, port in zip(names, self.backs, strict=True))
        advertised = "".join(f",{name}://{HOST}:{port}" for name, port in zip(names, self._fronts, strict=True))
        voters = ",".join(f"{node}@{HOST}:{port}" for node, port in enumerate(self._seat.controllers, 1))
        ours = f"""
node.id={self._seat.node}
listeners=PLAINTEXT://{self.bootstrap},CONTROLLER://{HOST}:{self._controller}{listeners}
advertised.listeners=PLAINTEXT://{self.bootstrap}{advertised}
listener.security.protocol.map={",".join(f"{name}:PLAINTEXT" for name in ["PLAINTEXT", "CONTROLLER", *names])}
controller.quorum.voters={voters}
log.dirs={self.directory / "data"}
{self._properties}
"""
        settings.write_text((KAFKA / "server.properties").read_text() + ours)
        if not (self.directory / "data" / "meta.properties").exists():
            self._format(settings)
        try:  # another server on this port would also answer the metadata request
            socket.create_server((HOST, self._port)).close()
        except OSError as error:
            raise BrokerError(f"port {self._port} is taken: choose another, or end what listens there") from error
        self._process = self._kafka(
            f"-Xms{self._heap}", f"-Xmx{self._heap}", *self._options, "kafka.Kafka", str(settings)
        )

    def _format(self, settings: Path) -> None:
        """Make the directory of a new cluster, with Kafka's tool if users have to be made or `archive` has not run."""
        data, known = self.directory / "data", jars(os.environ) / f".{FEATURES}"
        if not self._users and known.exists():  # what the tool would write, but without a JVM
            data.mkdir(exist_ok=True)
            shutil.copyfile(known, data / FEATURES)
            (data / "meta.properties").write_text(
                f"version=1\ncluster.id={self._seat.cluster}\nnode.id={self._seat.node}\n"
            )
            return
        storage = ["kafka.tools.StorageTool", "format", "-t", self._seat.cluster, "-c", str(settings)]
        for user, password in self._users.items():
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                storage += ["--add-scram", f"{mechanism}=[name={user},password={password}]"]
        self._process = self._kafka("-XX:TieredStopAtLevel=1", *storage)
        if self._process.wait(START_SECONDS) != 0:
            raise BrokerError(f"Kafka could not format {self.directory}; its log ends:\n{self.tail()}")

    def _kafka(self, *arguments: str) -> subprocess.Popen[bytes]:
        java, lib = self._executable(), jars(os.environ)
        kept = [f"-XX:SharedArchiveFile={lib / CLASSES}"] if (lib / CLASSES).exists() else []
        return self._java(java, "-Dorg.apache.logging.log4j.level=INFO", *kept, "-cp", f"{lib}/*", *arguments)


def archive() -> None:
    """Store what a broker derives from the jars when it starts, so that the next start takes half the time.

    `make jars` calls it.

    It stores the classes as a JVM has loaded them. A different JVM, or one with other jars, ignores them. It also
    stores the features that Kafka's tool gives to a new cluster of this version.
    """
    lib = KAFKA / "lib"
    for name in (CLASSES, f".{FEATURES}"):
        (lib / name).unlink(missing_ok=True)
    with Broker(java=[f"-XX:ArchiveClassesAtExit={lib / CLASSES}"]) as broker:
        shutil.copyfile(broker.directory / "data" / FEATURES, lib / f".{FEATURES}")
        broker.stop(START_SECONDS)  # it writes its classes now, which is slow on a busy machine


def jars(environment: Mapping[str, str]) -> Path:
    """Return the directory of Kafka's jars, each with the hash that the lock names.

    In a checkout `make jars` fetches them. An installed trueup fetches them itself when a broker is first started, with
    the same script and lock, into the user's cache.

    Raises BrokerError if they are not there and cannot be fetched.
    """
    if named := environment.get("TRUEUP_KAFKA_LIB"):
        return _held(Path(named).resolve(), "run `make jars`, or set TRUEUP_KAFKA_LIB to their directory")
    if IN_CHECKOUT:
        return _held(SHARE / "deploy" / "kafka" / "lib", "run `make jars`, or set TRUEUP_KAFKA_LIB to their directory")
    lock = SHARE / "requirements" / "kafka.txt"
    try:
        name = f"kafka-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    except OSError as exc:
        raise BrokerError(
            f"this installation is damaged: cannot read {lock}: {exc.strerror}; install trueup anew"
        ) from exc
    home = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = home / "trueup" / name
    if not directory.exists():
        _fetch(lock, directory)
    return _held(directory, "remove the directory: the jars are then fetched again")


def _held(directory: Path, remedy: str) -> Path:
    if not any(directory.glob("kafka_*.jar")):
        raise BrokerError(f"no Kafka jars in {directory}: {remedy}")
    return directory


def _fetch(lock: Path, directory: Path) -> None:
    """Fetch the jars of a lock with Maven. The directory exists only when all are there."""
    if missing := [what for program, what in _PROGRAMS.items() if shutil.which(program) is None]:
        raise BrokerError(
            f"Apache Kafka is fetched with {' and '.join(missing)}, not found on the PATH: install it, or set "
            "TRUEUP_KAFKA_LIB to a directory with Kafka's jars"
        )
    print(f"fetching Apache Kafka, once, about 45 MB, into {directory}", file=sys.stderr)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".fetching-") as made:
        fetched = Path(made) / "jars"
        script, pom = SHARE / "deploy" / "maven" / "jars", SHARE / "deploy" / "kafka" / "pom.xml"
        ended = subprocess.run(
            ["bash", str(script), str(pom), str(lock), str(fetched)],  # noqa: S607 - the user's own bash
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            said = "\n".join((ended.stdout + ended.stderr).strip().splitlines()[-8:])
            raise BrokerError(f"Apache Kafka's jars cannot be fetched by {script}; its output ends:\n{said}")
        fetched.replace(directory)


def cluster_id() -> str:
    """Return a new cluster id."""
    return uuid.uuid4().hex[:22]


def answers(port: int) -> bool:
    """Whether a broker of this machine answers at a port. It is asked for metadata (version 1, no topics)."""
    request = struct.pack(">ihhihi", 14, 3, 1, 0, -1, 0)
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection, connection.makefile("rb") as answer:
            connection.sendall(request)
            _size, _correlation, brokers = struct.unpack(">iii", answer.read(12))
    except (OSError, struct.error):
        return False
    return bool(brokers)


def serve(port: int | None = None, data_dir: Path | None = None) -> int:
    """Run a broker in the foreground, print its address, and return the exit status.

    The status is 0 after Ctrl-C or SIGTERM, and 1 if Kafka could not start or ended by itself.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Broker(data_dir, port) as broker:
            print(f"Apache Kafka is ready; Ctrl-C stops it. Its log: {broker.log}")
            print(f"export TRUEUP_BROKERS={broker.bootstrap}", flush=True)
            while broker.alive:
                time.sleep(0.2)
            print(f"Kafka ended by itself; its log ends:\n{broker.tail()}", file=sys.stderr)
    except KeyboardInterrupt:
        return 0
    except BrokerError as error:
        print(error, file=sys.stderr)
    return 1
