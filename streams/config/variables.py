"""Variables that are fields of one class: each is declared once, with its name, its meaning and its default."""

import logging
from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any, Final, TypeVar

log = logging.getLogger("trueup")

T = TypeVar("T")

#: Longest file of a secret, bytes: tokens that list groups take several kilobytes.
_SECRET_BYTES: Final = 16_384
#: What the name of a variable ends in that names a file which holds a secret.
_FILE: Final = "_FILE"


class Secret(str):
    """A secret that was read from a file, the file, and what the file held last; see `now`."""

    __slots__ = ("last", "path")
    path: Path
    last: "Secret"


def now(held: str | None) -> str | None:
    """Return a secret as its file has it now: a renewed password needs no restart.

    If the file cannot be read, this is what it held last, and the log says why. A secret without a file never changes.
    """
    if not isinstance(held, Secret):
        return held
    try:
        held.last = _secret("the file of a secret", held.path)
    except ValueError as exc:
        log.warning("%s; what was read before is used", exc)
    return held.last


def variable(name: str, meaning: str, default: str | None = None, *, in_file: str = "") -> Any:  # noqa: ANN401 - a field's
    """Return a field that is read from ``TRUEUP_`` and a name.

    ``in_file``: of a secret, what it is called: a variable that ends in ``_FILE`` may name a file that holds it. No
    repr shows it.
    """
    metadata = {"variable": f"TRUEUP_{name}", "meaning": meaning, "secret": in_file}
    return field(default=default, repr=not in_file, metadata=metadata)


def variables_of(of: type) -> dict[str, str]:
    """Return the variable of each field of a class."""
    return {each.name: each.metadata["variable"] for each in fields(of)}


def meanings(of: type) -> dict[str, str]:
    """Return the meaning of each variable of a class."""
    found: dict[str, str] = {}
    for each in fields(of):
        name, secret = each.metadata["variable"], each.metadata["secret"]
        found[name] = each.metadata["meaning"]
        if secret:
            found[name + _FILE] = f"File that holds {secret}"
    return found


def values(held: Any, hidden: str) -> dict[str, str]:  # noqa: ANN401 - of such a class
    """Return the value of each variable of an object, ``hidden`` for a secret; empty for none."""
    found = {each.metadata["variable"]: getattr(held, each.name) for each in fields(held)}
    secrets = {each.metadata["variable"] for each in fields(held) if each.metadata["secret"]}
    return {name: "" if value is None else hidden if name in secrets else str(value) for name, value in found.items()}


def read(of: type[T], environment: Mapping[str, str]) -> T:
    """Return an object of a class as the environment sets it, secrets read from their files.

    Raises ValueError if a secret is set twice or its file cannot be read, or if the class refuses what is set.
    """
    found: dict[str, str] = {}
    for each in fields(of):  # type: ignore[arg-type]  # a dataclass
        name = each.metadata["variable"]
        if name in environment:
            found[each.name] = environment[name]
        if each.metadata["secret"] and (file := name + _FILE) in environment:
            if name in environment:
                raise ValueError(f"{file} is set, and so is {name}: set one of them")
            found[each.name] = _secret(file, Path(environment[file]))
    return of(**found)


def _secret(name: str, path: Path) -> Secret:
    """Return the secret that a file holds as its only line; raises ValueError if it is not one line."""
    secret = Secret(text_of(name, path, _SECRET_BYTES).rstrip("\r\n"))
    if not secret or "\n" in secret:
        raise ValueError(f"{name}={path} must hold one line, the secret")
    secret.path, secret.last = path, secret
    return secret


def bytes_of(name: str, path: Path, limit: int) -> bytes:
    """Return what a file holds that a setting names, so many bytes at most; raises ValueError if it cannot be read."""
    try:
        with path.open("rb") as file:
            held = file.read(limit + 1)
    except OSError as exc:
        raise ValueError(f"{name}: cannot read {path}: {exc.strerror}") from exc
    if len(held) > limit:
        raise ValueError(f"{name}: {path} is longer than {limit} bytes")
    return held


def text_of(name: str, path: Path, limit: int) -> str:
    """Return the text that a file holds, as `bytes_of`; raises ValueError if it is none."""
    try:
        return bytes_of(name, path, limit).decode()
    except UnicodeDecodeError:
        raise ValueError(f"{name}: {path} is not text in UTF-8") from None
