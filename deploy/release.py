"""Builds a release: ``python deploy/release.py [--key FILE] DIRECTORY``; `make release` calls it.

The directory gets: wheel and source; a bill of materials (CycloneDX 1.6) of the packages that the wheel needs and of
the jars of its development broker; the packages' licences; what the release was made from (in-toto, SLSA provenance 1);
`SHA256SUMS`; and, with a key, its signature by ssh-keygen. The same commit gives the same bytes.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from replay import signature
from replay.signature import SignatureError

ROOT: Final = Path(__file__).resolve().parents[1]
#: Purpose of the signature, for ssh-keygen's -n.
NAMESPACE: Final = "trueup-release"
_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
_JAR: Final = re.compile(r"^([0-9a-f]{64})  ([^:]+):([^:]+):[^:]+:(\S+)$", re.MULTILINE)
_LICENCE_FILE: Final = re.compile(r"(licen[cs]e|copying|notice)", re.IGNORECASE)


class ReleaseError(RuntimeError):
    """A release cannot be built here; the message says what to do."""


class Package(NamedTuple):
    """A package in the runtime's lock, as it is installed here."""

    name: str
    version: str
    installed: Distribution

    @property
    def licence(self) -> str:
        """Its licence as the package states it: an expression, a name, or the names of its classifiers."""
        said = self.installed.metadata
        named = said["License-Expression"] or said["License"] or ""
        if not named or "\n" in named:
            kinds = [each for each in said.get_all("Classifier") or () if each.startswith("License ::")]
            named = ", ".join(each.rsplit(" :: ", 1)[1] for each in kinds)
        return named or "not said"


def packages() -> list[Package]:
    """Return the packages of `requirements/runtime.txt`. Raises `ReleaseError` if one is not installed as locked."""
    found = []
    for name, version in _PIN.findall((ROOT / "requirements" / "runtime.txt").read_text()):
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            raise ReleaseError(f"{name} of requirements/runtime.txt is not installed: run make setup") from None
        if installed.version != version:
            raise ReleaseError(f"{name} {installed.version} is installed, the lock has {version}: run make setup")
        found.append(Package(name, version, installed))
    return found


def bill(version: str, of: list[Package], made: datetime) -> str:
    """Return the bill of materials as JSON that fits the schema of CycloneDX."""
    licences = LicenseFactory()
    root = Component(name="trueup", version=version, type=ComponentType.APPLICATION, bom_ref="trueup")
    bom = Bom(serial_number=uuid5(NAMESPACE_URL, f"trueup {version} {made.isoformat()}"))
    bom.metadata.timestamp, bom.metadata.component = made, root
    parts = [
        Component(
            name=each.name,
            version=each.version,
            purl=PackageURL("pypi", name=each.name, version=each.version),
            bom_ref=f"pypi:{each.name}",
            licenses=[licences.make_from_string(each.licence)],
        )
        for each in of
    ]
    parts += [
        Component(
            name=artifact,
            group=group,
            version=release,
            purl=PackageURL("maven", namespace=group, name=artifact, version=release),
            bom_ref=f"maven:{group}:{artifact}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        )
        for digest, group, artifact, release in _JAR.findall((ROOT / "requirements" / "kafka.txt").read_text())
    ]
    bom.components.update(parts)
    bom.register_dependency(root, parts)
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    if (wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)) is not None:
        raise ReleaseError(f"the bill of materials is not CycloneDX: {wrong.data}")
    return text + "\n"


def notices(of: list[Package]) -> str:
    """Return the licences of packages, each with its text if the package has one."""
    return "".join(
        f"{'=' * 100}\n{each.name} {each.version}: {each.licence}\n{'=' * 100}\n\n" + "\n".join(_texts(each)) + "\n"
        for each in of
    )


def _texts(of: Package) -> Iterator[str]:
    for file in of.installed.files or ():
        if ".dist-info" in str(file.parent) and _LICENCE_FILE.search(str(file.name)):
            yield Path(str(file.locate())).read_text(errors="replace")


def provenance(made: Iterable[Path], commit: str) -> dict[str, Any]:
    """Return what files were made from: an in-toto statement that names the commit and the locks, with their hashes."""
    locks = sorted((ROOT / "requirements").glob("*.txt"))
    source = {"uri": "git+urn:trueup", "digest": {"gitCommit": commit}}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": each.name, "digest": {"sha256": _sha256(each)}} for each in made],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:trueup:make-release",
                "externalParameters": {"commit": commit},
                "resolvedDependencies": [
                    source,
                    *({"name": f"requirements/{each.name}", "digest": {"sha256": _sha256(each)}} for each in locks),
                ],
            },
            "runDetails": {"builder": {"id": "urn:trueup:deploy/release.py"}},
        },
    }


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def build(directory: Path, key: Path | None) -> list[str]:
    """Build a release in an empty directory; return the names of its files."""
    if directory.exists() and any(directory.iterdir()):
        raise ReleaseError(f"{directory} is not empty: name another, or empty it")
    if _git("status", "--porcelain"):
        raise ReleaseError("there are changes that are not committed: a release is of a commit")
    made = datetime.fromtimestamp(int(_git("log", "-1", "--format=%ct")), UTC)
    needed = packages()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(int(made.timestamp()))}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), str(ROOT)]
    built = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if built.returncode:
        raise ReleaseError("the wheel cannot be built:\n" + "\n".join((built.stdout + built.stderr).splitlines()[-15:]))
    (wheel,), (source,) = directory.glob("*.whl"), directory.glob("*.tar.gz")
    _steady(source, int(made.timestamp()))
    version = wheel.name.split("-")[1]
    (directory / f"trueup-{version}.cdx.json").write_text(bill(version, needed, made))
    (directory / f"trueup-{version}-notices.txt").write_text(notices(needed))
    statement = provenance(sorted(directory.iterdir()), _git("rev-parse", "HEAD"))
    (directory / f"trueup-{version}.provenance.json").write_text(json.dumps(statement, indent=2) + "\n")
    files = sorted(directory.iterdir())
    sums = directory / "SHA256SUMS"
    sums.write_text("".join(f"{_sha256(each)}  {each.name}\n" for each in files))
    if key is not None:
        try:
            signature.sign(sums, key, NAMESPACE)
        except SignatureError as exc:
            raise ReleaseError(f"{sums.name} cannot be signed: {exc}") from exc
    return [each.name for each in sorted(directory.iterdir())]


def _steady(source: Path, when: int) -> None:
    """Pack a source distribution again, without the times and users of this build."""
    with tarfile.open(source) as old:
        members = [(each, old.extractfile(each)) for each in sorted(old.getmembers(), key=lambda member: member.name)]
        packed = io.BytesIO()
        with (
            gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=when) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as new,
        ):
            for member, content in members:
                member.mtime, member.uid, member.gid, member.uname, member.gname = when, 0, 0, "", ""
                member.pax_headers = {}
                new.addfile(member, content)
    source.write_bytes(packed.getvalue())


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Build a release, print what it is; return the exit status."""
    parser = argparse.ArgumentParser(description="Build wheel, source, bill of materials, notices and checksums.")
    parser.add_argument("--key", type=Path, help="private key of ssh-keygen that signs the checksums")
    parser.add_argument("directory", type=Path, help="where they go; empty or new")
    options = parser.parse_args()
    try:
        print(*build(options.directory, options.key), sep="\n")
    except ReleaseError as exc:
        print(exc, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
