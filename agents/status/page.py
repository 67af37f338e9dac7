"""The pages as HTML: templates, one style sheet and one short script.

Both are inline, and the content policy has their hashes.

Names of streams come from records, so anybody may choose them. Templates escape every text, and the policy forbids the
browser to run or load anything else.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from agents.status import view
from agents.status.markup import Markup, visible
from agents.status.number_format import count, duration, percent, points, score, share, signed

TEMPLATES: Final = Path(__file__).parent / "templates"
#: A picture for the tab, so that no browser asks for one.
_ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M2 14 14 2' "
    "stroke='%231f6f8b' stroke-width='2.5' stroke-linecap='round'/%3E%3C/svg%3E"
)


def environment(*folders: Path) -> Environment:
    """Return a renderer for the templates in some folders. It escapes all text and spells out invisible characters."""
    made = Environment(
        loader=FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_seen,
    )
    formats: tuple[Callable[..., str], ...] = (count, duration, percent, points, score, share, signed)
    made.filters.update({each.__name__: each for each in formats})
    made.filters["moment"] = lambda seconds: f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"
    return made


def _seen(value: object) -> object:
    return visible(value) if type(value) is str else value


def named(text: str) -> str:
    """Return the hash by which a content policy names a style or a script."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def style(*files: Path) -> str:
    """Return the style sheet that all pages share, followed by ``files``."""
    return "".join(each.read_text() for each in (TEMPLATES / "base.css", *files))


_STYLE: Final = style(TEMPLATES / "page.css")
_SCRIPT: Final = (TEMPLATES / "page.js").read_text()
#: What a browser may do with a page.
POLICY: Final = (
    f"default-src 'none'; style-src {named(_STYLE)}; script-src {named(_SCRIPT)}; connect-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGES: Final = environment()


def render(name: str, worker: Mapping[str, Any], **more: Any) -> str:  # noqa: ANN401 - any value of the templates
    """Return a page, made from its template. ``worker`` comes from `Readings.worker`."""
    return _PAGES.get_template(name).render(
        style=Markup(_STYLE),
        script=Markup(_SCRIPT),
        icon=Markup(_ICON),
        worker=worker,
        facts=view.facts(worker),
        now=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}",
        silent=False,
        **more,
    )
