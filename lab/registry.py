"""A real schema registry on this machine: Apicurio Registry, one JVM on loopback, for the tests.

`make registry` fetches it from Maven Central. It has Confluent's REST interface under ``/apis/ccompat/v7``, and keeps
what it is told in a file. It ends with the process that started it.
"""

import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self
from urllib.error import URLError
from urllib.request import urlopen

from lab.jvm import HOST, dies_with_parent, free_port, java, lacking

LIB: Final = Path(__file__).resolve().parents[1] / "deploy" / "registry" / "lib"
PATH: Final = "/apis/ccompat/v7"
START_SECONDS: Final = 180.0  # 9 on an idle machine with two cores
STOP_SECONDS: Final = 15.0


class ApicurioError(RuntimeError):
    """Apicurio cannot run here; the message says why and what to do."""


class Apicurio:
    """Apicurio Registry: started on entering the context or by `start`, stopped on leaving it or by `stop`.

    Parameters
    ----------
    data_dir
        Directory of the schemas and of the log; it is kept over restarts. `None`: a temporary directory that `stop`
        removes.

    Attributes
    ----------
    url
        Address of Confluent's interface; the same over restarts of this object.
    log
        File with the output of all starts.

    Notes
    -----
    As with `lab.broker.Broker`, call `start` from a thread that lives as long as the registry is needed.
    """

    def __init__(self, data_dir: Path | None = None) -> None:
        self._temporary: TemporaryDirectory[str] | None = None
        if data_dir is None:
            self._temporary = TemporaryDirectory(prefix="trueup-registry-")
            data_dir = Path(self._temporary.name)
        self._directory = data_dir.resolve()
        self.log = self._directory / "registry.log"
        self._port = free_port()
        self.url = f"http://{HOST}:{self._port}{PATH}"
        self._jvm: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    @staticmethod
    def there() -> bool:
        """Whether `make registry` has fetched it."""
        return any(LIB.glob("*-runner.jar"))

    @property
    def alive(self) -> bool:
        """Whether the JVM exists."""
        return self._jvm is not None and self._jvm.poll() is None

    def start(self) -> None:
        """Start the JVM and return once it answers.

        Raises
        ------
        ApicurioError
            Java or the registry is missing, the JVM died, or it was not ready in `START_SECONDS`.
        """
        if self.alive:
            raise ApicurioError(f"the registry already runs at {self.url}")
        try:
            self._launch()
            self._wait()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the JVM with SIGTERM, after `STOP_SECONDS` with SIGKILL; remove a temporary directory."""
        if self._jvm is not None:
            self._jvm.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._jvm.wait(STOP_SECONDS)
            self.kill()
        if self._temporary is not None:
            self._temporary.cleanup()

    def kill(self) -> None:
        """Kill the JVM with SIGKILL; `start` starts the same registry again, with what it held."""
        if self._jvm is not None:
            self._jvm.kill()
            self._jvm.wait()

    def tail(self, lines: int = 15) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _launch(self) -> None:
        executable = java()
        if executable is None:
            raise ApicurioError(lacking())
        runner = next(LIB.glob("*-runner.jar"), None)
        if runner is None:
            raise ApicurioError(f"no registry in {LIB}: run `make registry`")
        (self._directory / "tmp").mkdir(parents=True, exist_ok=True)
        options = {
            "java.io.tmpdir": self._directory / "tmp",
            "quarkus.http.host": HOST,
            "quarkus.http.port": self._port,
            # What was acknowledged is on disk: the registry may be killed.
            "REGISTRY_DATASOURCE_URL": f"jdbc:h2:file:{self._directory / 'schemas'};WRITE_DELAY=0",
        }
        command = [executable, "-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", "-Xmx512m"]
        with self.log.open("ab") as log:
            self._jvm = subprocess.Popen(
                [*command, *(f"-D{name}={value}" for name, value in options.items()), "-jar", runner],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                process_group=0,  # as a broker's: Ctrl-C in a terminal is for who started it
                preexec_fn=dies_with_parent(),
            )

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if not self.alive:
                raise ApicurioError(f"the registry died while starting; its log ends:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ApicurioError(f"not ready within {START_SECONDS:.0f} s; its log ends:\n{self.tail()}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with urlopen(f"{self.url}/subjects", timeout=10) as answer:  # noqa: S310 - our own
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False
