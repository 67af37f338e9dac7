"""Elements of HTML and SVG. Text is escaped unless it is markup already, so a name can never become an element."""

import re
import unicodedata
from html import escape
from typing import Final

from markupsafe import Markup

__all__ = ("Markup", "coordinate", "join", "prose", "quoted", "tag", "text", "visible")

#: Characters that are invisible or move visible ones: controls, formats (such as bidirectional overrides), line
#: separators, private use, surrogates, unassigned.
_UNSEEN: Final = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"))
#: Elements without content.
_VOID: Final = frozenset(("meta", "br", "wbr"))


#: What an element may hold: text, which is escaped, or markup.
Child = str | None


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """Return an element.

    ``children``: text and markup; None is left out.
    ``attributes``: by name. ``class_`` is ``class``, other underscores are hyphens. None is left out; numbers go
    through `coordinate`.

    Examples
    --------
    >>> str(tag("td", "<b>", class_="n"))
    '<td class="n">&lt;b&gt;</td>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{quoted(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Return the children one after another."""
    return Markup("".join(map(text, filter(None, children))))


def prose(value: str) -> Markup:
    """Return a sentence as markup, with text between backticks as code.

    Examples
    --------
    >>> str(prose("set `silence = 0`, <b>"))
    'set <code>silence = 0</code>, &lt;b&gt;'
    """
    return join(*(tag("code", part) if i % 2 else part for i, part in enumerate(re.split("`([^`]*)`", value))))


def text(value: str) -> Markup:
    """Return text as markup: escaped, and invisible characters spelled out, such as ⟨U+202E⟩."""
    return value if isinstance(value, Markup) else Markup(escape(visible(value)))


def quoted(value: str | float) -> str:
    """Return the value of an attribute."""
    return text(value) if isinstance(value, str) else coordinate(value)


def visible(value: str) -> str:
    """Return text with every character visible. A name in a record may hold any character."""
    if value.isascii() and value.isprintable():
        return value
    return "".join(f"⟨U+{ord(c):04X}⟩" if unicodedata.category(c) in _UNSEEN else c for c in value)


def coordinate(value: float) -> str:
    """Return a number for a picture: at most two decimals, without trailing zeros.

    Examples
    --------
    >>> coordinate(12.300001), coordinate(-0.001), coordinate(40)
    ('12.3', '0', '40')
    """
    said = f"{value:.2f}".rstrip("0").rstrip(".") if "." in f"{value:.2f}" else f"{value:.0f}"
    return "0" if said == "-0" else said
