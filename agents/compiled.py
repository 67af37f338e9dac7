"""Chooses the engine: compiled if `deploy/compile.py` compiled exactly these sources, otherwise interpreted.

Both come from the same Python files and write the same bytes; compiled by mypyc they take less time. The compiled copy
carries a hash of its sources. If the sources here differ, the copy is a different program and is not used.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
#: The compiled copy: `PACKAGES` with the compiled modules beside their sources.
PLACE: Final = ROOT / ".compiled"
STAMP: Final = "STAMP"
ENGINE: Final = ("state", "streams")
PACKAGES: Final = ("replay", *ENGINE)
#: Set to "no" to run interpreted in any case, to "yes" to run compiled or not at all.
VARIABLE: Final = "TRUEUP_COMPILED"


def sources(root: Path) -> Iterator[Path]:
    """Yield every source file of `PACKAGES` below a root, in the order of their names."""
    for package in PACKAGES:
        yield from sorted((root / package).rglob("*.py"))


def stamp(root: Path) -> str:
    """Return the stamp of a compiled copy of the sources below a root: a hash of interpreter, names and contents."""
    digest = blake2b(f"{sys.implementation.cache_tag} {sys.platform}".encode(), digest_size=16)
    for path in sources(root):
        digest.update(f"\n{path.relative_to(root)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def prefer(environment: Mapping[str, str]) -> None:
    """Let later imports of `PACKAGES` find the compiled copy, if it was made from these sources.

    Raises ImportError if there is none and the environment requires it.
    """
    reason = missing(environment)
    if reason and environment.get(VARIABLE) == "yes":
        raise ImportError(f"{VARIABLE} is yes, but {reason}")
    if not reason and str(PLACE) not in sys.path:
        sys.path.insert(0, str(PLACE))


@contextmanager
def handed_on() -> Iterator[None]:
    """Make processes that start inside this context run the same engine, because engines send objects between them."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "yes" if runs() else "no"
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before


def runs() -> bool:
    """Return whether this process runs the compiled engine, by the import path."""
    return "state" in sys.modules and _ours("state")


def place(package: str) -> list[str]:
    """Return where the modules of a package are, for its ``__path__``: a package may be imported before this choice."""
    return [str((PLACE if str(PLACE) in sys.path else ROOT) / package)]


def missing(environment: Mapping[str, str]) -> str | None:
    """Return why the compiled copy is not used, or None if it is."""
    if environment.get(VARIABLE) == "no":
        return f"{VARIABLE} is no"
    try:
        found = (PLACE / STAMP).read_text().split(" ")[0]
    except OSError:
        return "nothing was compiled; in a checkout `make compiled` does, with a C compiler"
    if found != stamp(ROOT):
        return "the sources changed since `make compiled`"
    if any(package in sys.modules and not _ours(package) for package in ENGINE):  # `replay` sets its own `place`
        return "the sources were imported first"
    return None


def _ours(package: str) -> bool:
    """Whether an imported package comes from the compiled copy."""
    return str(PLACE) in (sys.modules[package].__file__ or "")
