"""Variables that are fields of one class: each is declared once, with its name, its meaning and its default."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields
from pathlib import Path
from typing import Any, Final, TypeVar

log = logging.getLogger("trueup")

T = TypeVar("T")

#: Longest file of a secret, in bytes: a token that lists groups takes several kilobytes.
_SECRET_BYTES: Final = 16_384
#: Suffix of variables that name a secret's file.
_FILE: Final = "_FILE"


class Secret(str):
    """A secret, the file it was read from, and the last content of that file; see `now`."""

    __slots__ = ("last", "path")
    path: Path
    last: "Secret"


def now(held: str | None) -> str | None:
    """Return the present content of a secret's file: a renewed password needs no restart.

    If the file cannot be read, its last content is returned, and the log says why. A secret without a file never
    changes.
    """
    if not isinstance(held, Secret):
        return held
    try:
        held.last = _secret("the file of a secret", held.path)
    except ValueError as exc:
        log.warning("%s; its last content is used", exc)
    return held.last


def variable(name: str, meaning: str, default: str | None = None, *, in_file: str = "") -> Any:  # noqa: ANN401 - a field's
    """Return a field that is read from ``TRUEUP_`` and a name.

    ``in_file``: for a secret, its name in messages. A variable with the suffix ``_FILE`` may name the secret's file,
    and no repr shows the secret.
    """
    metadata = {"variable": f"TRUEUP_{name}", "meaning": meaning, "secret": in_file}
    return field(default=default, repr=not in_file, metadata=metadata)


def setting(meaning: str, parse: Callable[[str], Any], default: Any) -> Any:  # noqa: ANN401 - any setting's type
    """Return a field that is read from ``TRUEUP_`` and its name in capitals.

    ``parse``: returns the value for a text; raises ValueError that says what is allowed.
    """
    return field(default=default, metadata={"variable": "", "meaning": meaning, "secret": "", "parse": parse})


def variables_of(of: Any) -> dict[str, Field[Any]]:  # noqa: ANN401 - a class of such fields, or an object of one
    """Return the fields of a class that are read from variables, by variable."""
    declared = [each for each in fields(of) if "variable" in each.metadata]
    return {each.metadata["variable"] or f"TRUEUP_{each.name.upper()}": each for each in declared}


def variable_of(of: type, name: str) -> str:
    """Return the variable of a field of a class."""
    return next(variable for variable, each in variables_of(of).items() if each.name == name)


def meanings(of: type) -> dict[str, str]:
    """Return the meaning of each variable of a class."""
    found: dict[str, str] = {}
    for name, each in variables_of(of).items():
        found[name] = each.metadata["meaning"]
        if secret := each.metadata["secret"]:
            found[name + _FILE] = f"File that holds {secret}"
    return found


def values(held: Any, hidden: str) -> dict[str, str]:  # noqa: ANN401 - of such a class
    """Return the value of each variable of an object, ``hidden`` for a secret; empty for none."""
    found = {name: (getattr(held, each.name), each.metadata["secret"]) for name, each in variables_of(held).items()}
    return {name: hidden if secret and value is not None else text(value) for name, (value, secret) in found.items()}


def text(value: object) -> str:
    """Return a value as the text of a variable; empty for None."""
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else str(value)


def read(of: type[T], environment: Mapping[str, str]) -> T:
    """Return an object of a class from the environment; raises ValueError as `given`, or if the class does."""
    return of(**given(of, environment))


def given(of: type, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a class that the environment sets. Secrets are read from their files.

    Raises ValueError if a value is not allowed, or a secret is set twice or its file cannot be read.
    """
    found: dict[str, Any] = {}
    for name, each in variables_of(of).items():
        if name in environment:
            found[each.name] = _parsed(name, environment[name], each.metadata.get("parse", str))
        if each.metadata["secret"] and (file := name + _FILE) in environment:
            if name in environment:
                raise ValueError(f"{file} is set, and so is {name}: set one of them")
            found[each.name] = _secret(file, Path(environment[file]))
    return found


def _parsed(name: str, value: str, parse: Callable[[str], Any]) -> Any:  # noqa: ANN401 - any setting's type
    try:
        return parse(value)
    except ValueError as exc:
        shown = "" if "@" in value else f"={value!r}"  # an address may contain a password, which must not be logged
        raise ValueError(f"{name}{shown}: {exc}") from exc


def _secret(name: str, path: Path) -> Secret:
    """Return the secret that a file holds as its only line; raises ValueError if it is not one line."""
    secret = Secret(text_of(name, path, _SECRET_BYTES).rstrip("\r\n"))
    if not secret or "\n" in secret:
        raise ValueError(f"{name}={path} must hold one line, the secret")
    secret.path, secret.last = path, secret
    return secret


def bytes_of(name: str, path: Path, limit: int) -> bytes:
    """Return the content of a file that a setting names; raises ValueError if it is too long or cannot be read."""
    try:
        with path.open("rb") as file:
            held = file.read(limit + 1)
    except OSError as exc:
        raise ValueError(f"{name}: cannot read {path}: {exc.strerror}") from exc
    if len(held) > limit:
        raise ValueError(f"{name}: {path} is longer than {limit} bytes")
    return held


def text_of(name: str, path: Path, limit: int) -> str:
    """Return the text of a file, as `bytes_of`; raises ValueError if it is not UTF-8."""
    try:
        return bytes_of(name, path, limit).decode()
    except UnicodeDecodeError:
        raise ValueError(f"{name}: {path} is not text in UTF-8") from None
