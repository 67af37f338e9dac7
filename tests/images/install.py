"""``python -m tests.images.install``: install the wheel of this checkout in an empty container, as a stranger does.

The container is a minimal Debian with Python, without the repository. Prints a line a finding; the status is 1 if one
is not as it should be, and 0, with the reason, where Docker is missing.
"""

import signal
import sys
from tempfile import TemporaryDirectory
from typing import Final

from tests.images import docker
from tests.images.docker import AUTHORITIES, EngineError
from tests.images.trial import Trial

STAND_IN: Final = "trueup-stand-in"
NAME: Final = "trueup-install"
#: A table of a thousand scores and labels.
TABLE: Final = """python -c "
print('id,score,label,time')
for i in range(1000): print(f'e{i},{i % 10 / 10},{i % 3 == 0:d},2024-01-{1 + i // 100:02}T{i // 5 % 24:02}:00:00Z')
" > t.csv"""
REPLAY: Final = "trueup replay --table t.csv --score score --label label --time time --report r.html"
#: Has Java trust whom this machine trusts.
TRUSTED: Final = "{ ! test -f /trusted/java/cacerts || cp /trusted/java/cacerts /etc/ssl/certs/java/; }"
APT: Final = "apt-get -qq install --yes --no-install-recommends"
#: What is done, its commands, the status with which the last ends, and words that are printed.
STEPS: Final = (
    ("uv is there", "python -m venv /opt/uv && /opt/uv/bin/pip install --quiet uv", 0, ""),
    ("uv installs the wheel", "uv --quiet --system-certs tool install /dist/*.whl", 0, ""),
    ("trueup says its version", "trueup --version", 0, "0."),
    ("doctor names the brokers that do not answer", "TRUEUP_BROKERS=127.0.0.1:1 trueup doctor", 1, "wrong"),
    ("a table is replayed to a report", f"{TABLE}; {REPLAY} && grep -q '</html>' r.html", 0, ""),
    ("without Java a broker is refused in words", "trueup dev demo --scenario fraud --rows 2000", 1, "JDK 17"),
    ("a JDK and Maven are there", f"apt-get -qq update && {APT} openjdk-17-jdk-headless maven && {TRUSTED}", 0, ""),
    ("uv installs the extra", 'uv --quiet --system-certs tool install --force "$(ls /dist/*.whl)[demo]"', 0, ""),
    ("the demo plays, and all agrees", "trueup dev demo --quiet --scenario fraud --rows 2000 --out d.svg", 0, ""),
)  # fmt: skip


def main() -> int:
    """Build, install, tell; return the exit status."""
    if reason := docker.missing():
        print(f"skipped: {reason}")
        return 0
    trial = Trial()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with docker.opened() as engine, TemporaryDirectory(prefix="trueup-install-") as dist:
            engine.stand_in(STAND_IN)
            docker.executed([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", dist], {})
            engine.run("run", "--detach", f"--name={NAME}", "--network=host", f"--volume={dist}:/dist:ro",
                       f"--volume={AUTHORITIES.parent}:/trusted:ro",
                       "--workdir=/root", STAND_IN, "sleep", "infinity")  # fmt: skip
            try:
                for claim, script, status, said in STEPS:
                    path = "export PATH=/root/.local/bin:/opt/uv/bin:$PATH"
                    done = engine.run("exec", NAME, "sh", "-c", f"{path}; {script}", check=False)
                    printed = done.stdout + done.stderr
                    holds = done.returncode == status and said in printed
                    trial.found(claim, holds, "" if holds else (done.returncode, *printed.splitlines()[-8:]))
            finally:
                engine.run("rm", "--force", NAME)
    except EngineError as exc:
        trial.found(str(exc), holds=False)
    return trial.over()


if __name__ == "__main__":
    sys.exit(main())
