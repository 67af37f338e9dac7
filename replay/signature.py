"""Signatures of files, made by ssh-keygen with any SSH key."""

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

#: Suffix of a signature's file name, as ssh-keygen sets it.
SUFFIX: Final = ".sig"


class SignatureError(ValueError):
    """A file cannot be signed, or its signature is not valid; the message says why."""


def sign(path: Path, key: Path, namespace: str) -> None:
    """Write the signature of a file beside it. It replaces an older one.

    Raises SignatureError if there is no ssh-keygen, or if it refuses.

    ``key``: private key of ssh-keygen.
    ``namespace``: the purpose of the signature. A signature for a different purpose is not valid.
    """
    path.with_name(path.name + SUFFIX).unlink(missing_ok=True)
    _run(path, "sign", "-f", str(key), "-n", namespace, str(path))


def verify(path: Path, signers: Path, namespace: str) -> str:
    """Return who has signed a file.

    Raises SignatureError if the file has no signature, or an invalid one.

    ``signers``: a file with a line for each who may sign, with the public key: what ssh-keygen(1) calls ALLOWED
    SIGNERS.
    """
    signature = path.with_name(path.name + SUFFIX)
    if not signature.exists():
        raise SignatureError(f"{path} has no signature {signature.name} beside it")
    found = _run(path, "find-principals", "-s", str(signature), "-f", str(signers)).split()
    if not found:
        raise SignatureError(f"none of the signers in {signers} has signed {path}")
    for name in found[:-1]:  # a key may be on several lines, each for other namespaces
        with suppress(SignatureError):
            return _verified(path, name, namespace, signers, signature)
    return _verified(path, found[-1], namespace, signers, signature)


def _verified(path: Path, name: str, namespace: str, signers: Path, signature: Path) -> str:
    _run(path, "verify", "-f", str(signers), "-I", name, "-n", namespace, "-s", str(signature))
    return name


def _run(path: Path, action: str, *arguments: str) -> str:
    """Run ssh-keygen on a file; return what it printed."""
    program = shutil.which("ssh-keygen")
    if program is None:
        raise SignatureError("there is no ssh-keygen on the PATH, which signs and verifies: install OpenSSH's client")
    try:
        with path.open("rb") as file:
            command = [program, "-Y", action, *arguments]
            ended = subprocess.run(command, stdin=file, capture_output=True, text=True, check=False)  # noqa: S603 - its path
    except OSError as exc:
        raise SignatureError(f"cannot read {path}: {exc.strerror or exc}") from exc
    if ended.returncode:
        said = (ended.stderr or ended.stdout).strip()
        raise SignatureError(f"ssh-keygen -Y {action} of {path} ended with {ended.returncode}: {said}")
    return ended.stdout
