"""A source: topics whose records are mapped."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Source:
    """What the TOML file says of one."""

    #: As the file names it.
    name: str
    #: ``forecast`` or ``outcome``.
    role: str
    #: Names of topics.
    topics: tuple[str, ...]
    #: The mapping, as the file gives it, without name and topics.
    table: Mapping[str, Any] = field(compare=False)
