"""A source: topics whose records are mapped."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Source:
    """What the TOML file says of one.

    Attributes
    ----------
    name
        As the file names it.
    role
        ``forecast`` or ``outcome``.
    topics
        Names of topics.
    table
        The mapping, as the file gives it, without name and topics.
    """

    name: str
    role: str
    topics: tuple[str, ...]
    table: Mapping[str, Any] = field(compare=False)
