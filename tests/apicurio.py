"""A real schema registry on this machine: Apicurio Registry, one JVM on loopback, for the tests.

`make registry` fetches it from Maven Central. It has Confluent's REST interface under ``/apis/ccompat/v7``, and keeps
what it is told in a file. It ends with the process that started it.
"""

import subprocess
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

from lab.jvm import HOST, JavaServer, free_port

LIB: Final = Path(__file__).resolve().parents[1] / "deploy" / "registry" / "lib"
PATH: Final = "/apis/ccompat/v7"


class ApicurioError(RuntimeError):
    """Apicurio cannot run here; the message says why and what to do."""


class Apicurio(JavaServer):
    """Apicurio Registry: started on entering the context or by `start`, stopped on leaving it or by `stop`.

    ``data_dir``: of schemas and log, kept over restarts. `None`: a temporary directory that `stop` removes.
    """

    name, said, error = "registry", "the registry", ApicurioError

    def __init__(self, data_dir: Path | None = None) -> None:
        super().__init__(data_dir)
        self._port = free_port()
        #: Address of Confluent's interface; the same over restarts of this object.
        self.url = f"http://{HOST}:{self._port}{PATH}"

    @staticmethod
    def there() -> bool:
        """Whether `make registry` has fetched it."""
        return any(LIB.glob("*-runner.jar"))

    def start(self) -> None:
        """Start the JVM and return once it answers.

        Raises ApicurioError if Java or the registry is missing, the JVM died, or it was not ready in `START_SECONDS`.
        """
        if self.alive:
            raise ApicurioError(f"the registry already runs at {self.url}")
        try:
            self._process = self._launched()
        except BaseException:
            self.stop()
            raise
        self._await(self._answers)

    def _launched(self) -> subprocess.Popen[bytes]:
        java = self._executable()
        runner = next(LIB.glob("*-runner.jar"), None)
        if runner is None:
            raise ApicurioError(f"no registry in {LIB}: run `make registry`")
        options = {
            "quarkus.http.host": HOST,
            "quarkus.http.port": self._port,
            # What was acknowledged is on disk: the registry may be killed.
            "REGISTRY_DATASOURCE_URL": f"jdbc:h2:file:{self.directory / 'schemas'};WRITE_DELAY=0",
        }
        settings = (f"-D{name}={value}" for name, value in options.items())
        return self._java(java, "-XX:TieredStopAtLevel=1", "-Xmx512m", *settings, "-jar", str(runner))

    def _answers(self) -> bool:
        try:
            with urlopen(f"{self.url}/subjects", timeout=10) as answer:  # noqa: S310 - our own
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False
