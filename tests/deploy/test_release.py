"""What `make release` hands out: a wheel that works outside a checkout, and what it says of what it needs."""

import hashlib
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from deploy import release

ROOT: Final = Path(__file__).resolve().parents[2]


def test_the_bill_names_every_package_and_jar_of_the_locks() -> None:
    needed = release.packages()
    made = datetime(2026, 1, 1, tzinfo=UTC)
    bill = json.loads(release.bill("1.2.3", needed, made))
    assert release.bill("1.2.3", needed, made) == release.bill("1.2.3", needed, made)
    named = {each["purl"] for each in bill["components"]}
    locked = (ROOT / "requirements" / "runtime.txt").read_text().splitlines()
    for line in locked:
        if "==" in line and not line.startswith((" ", "#")):
            name, _, version = line.split()[0].partition("==")
            assert f"pkg:pypi/{name}@{version}" in named
    for line in (ROOT / "requirements" / "kafka.txt").read_text().splitlines():
        if not line.startswith("#"):
            group, artifact, _, version = line.split("  ")[1].split(":")
            assert f"pkg:maven/{group}/{artifact}@{version}" in named
    notices = release.notices(needed)
    assert all(f"{each.name} {each.version}: " in notices for each in needed)
    assert "not said" not in notices


def test_provenance_names_the_commit_the_locks_and_what_was_made(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"wheel")
    said = release.provenance(tmp_path.iterdir(), "c0ffee")
    assert said["subject"] == [{"name": "a.whl", "digest": {"sha256": hashlib.sha256(b"wheel").hexdigest()}}]
    commit, *locks = said["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert commit["digest"] == {"gitCommit": "c0ffee"}
    assert {each["name"] for each in locks} >= {"requirements/runtime.txt", "requirements/dev.txt"}
    for each in locks:
        assert each["digest"]["sha256"] == hashlib.sha256((ROOT / each["name"]).read_bytes()).hexdigest()


def test_the_wheel_works_outside_a_checkout(tmp_path: Path) -> None:
    """It has its templates and what fetches Kafka, which an editable install takes from the checkout."""
    source = tmp_path / "source"
    clone = ["git", "clone", "--quiet", "--shared", str(ROOT), str(source)]
    subprocess.run(clone, check=True)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    place = tmp_path / "environment"
    # Unless told to ignore it, pip takes the checkout's own installation away.
    install = [sys.executable, "-m", "pip", "install", "--ignore-installed", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--no-compile", "--prefix", str(place), str(wheel)], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    rows = [f"e{i},{i % 10 / 10},{i % 3 == 0:d},2024-01-{1 + i // 100:02}T{i // 5 % 24:02}:00:00Z" for i in range(1000)]
    (tmp_path / "t.csv").write_text("\n".join(["id,score,label,time", *rows]))
    ended = subprocess.run(
        [sys.executable, "-m", "cli.main", "replay", "--table", "t.csv", "--score", "score", "--label", "label",
         "--time", "time", "--report", "report.html"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(packages), "TRUEUP_COMPILED": "no"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "</html>" in (tmp_path / "report.html").read_text()
    for each in (
        "deploy/kafka/server.properties",
        "deploy/kafka/pom.xml",
        "deploy/maven/jars",
        "requirements/kafka.txt",
    ):
        assert (place / "share" / "trueup" / each).read_bytes() == (ROOT / each).read_bytes()
