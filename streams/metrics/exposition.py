"""The series of streams in Prometheus's text format. They are written again only if rows changed.

A worker has hundreds of streams with tens of series each. Between two scrapes usually few streams change, sometimes
all, and each takes 2 ms of processor time. So a scrape writes only some of the changed streams again, in turns.
"""

import re
from collections.abc import Mapping
from time import thread_time
from typing import Final

from state.policies import Policies
from streams.metrics import views
from streams.metrics.catalogue import CATALOGUE, PREFIX
from streams.metrics.rows import StateRows
from streams.metrics.snapshot import PartitionSnapshot

#: Processor time that a scrape may spend on writing streams again, s. New streams are always written.
SECONDS = 0.1
#: The metrics that are exported by stream.
OF_STREAMS: Final = {name: metric for name, metric in CATALOGUE.items() if "stream" in metric.labels}
#: How lines of samples begin: with labels, and without.
_WITH_LABELS, _BARE = re.compile(rb"^(\w+)\{", re.MULTILINE), re.compile(rb"^(\w+) ", re.MULTILINE)
#: Characters that the text format escapes in quotes.
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Exposition:
    """Writes the series of streams. Only one thread at a time may use it.

    ``app``: label of every series; empty: no label.
    """

    def __init__(self, policies: Policies, app: str = "") -> None:
        self._policies, self._app = policies, app
        #: By stream: the rows from which it was last written, and its lines by metric; the latest stream comes last.
        self._written: dict[str, tuple[list[object], dict[str, bytes]]] = {}

    def text(self, held: Mapping[int, PartitionSnapshot], counted: Mapping[str, Mapping[str, int]]) -> bytes:
        """Return all families of streams, even those without a sample.

        After `SECONDS` of processor time, the changed streams that are left keep their old lines until the next call.

        ``held``: the snapshot of each partition; other threads may replace rows meanwhile.
        ``counted``: the values of each counter, by stream.
        """
        rows = _rows(held)
        known = self._written
        for stream in known.keys() - rows.keys():
            del known[stream]
        changed = [stream for stream, (of, _) in known.items() if of != rows[stream]]
        for stream in [each for each in rows if each not in known]:
            known[stream] = rows[stream], self._lines(held, stream)
        until = thread_time() + SECONDS
        for stream in changed:
            del known[stream]
            known[stream] = rows[stream], self._lines(held, stream)
            if thread_time() > until:
                break
        parts = []
        for name, metric in OF_STREAMS.items():
            whole = PREFIX + name + ("_total" if metric.kind == "counter" else "")
            parts.append(f"# HELP {whole} {metric.help}\n# TYPE {whole} {metric.kind}\n".encode())
            of_streams = [_line(whole, ("stream",), (stream,), n) for stream, n in list(counted.get(name, {}).items())]
            parts.append(labelled("".join(of_streams).encode(), self._app))
            parts += (lines[name] for _, lines in self._written.values() if name in lines)
        return b"".join(parts)

    def _lines(self, held: Mapping[int, PartitionSnapshot], stream: str) -> dict[str, bytes]:
        policy = self._policies.of(stream)
        lines: dict[str, list[str]] = {}
        found = StateRows({n: each.rows for n, each in held.items()})
        for name, labels, value in views.samples(found, stream, policy):
            lines.setdefault(name, []).append(_line(PREFIX + name, CATALOGUE[name].labels, labels, value))
        return {name: labelled("".join(several).encode(), self._app) for name, several in lines.items()}


def _line(name: str, labels: tuple[str, ...], values: tuple[str, ...], value: float) -> str:
    pairs = zip(labels, values, strict=True)
    named = ",".join([f'{label}="{text.translate(_ESCAPES)}"' for label, text in pairs])
    return f"{name}{{{named}}} {float(value)!r}\n"


def labelled(text: bytes, app: str) -> bytes:
    """Add the application as the first label of every series; if empty, change nothing.

    ``app`` is a valid Kafka name, so it needs no escapes.
    """
    if not app:
        return text
    label = b'\\1{app="%b"' % app.encode()
    return _BARE.sub(label + b"} ", _WITH_LABELS.sub(label + b",", text))


def _rows(held: Mapping[int, PartitionSnapshot]) -> dict[str, list[object]]:
    """Return the rows of each stream. Most are the same objects as last time, so comparing them is fast."""
    found: dict[str, list[object]] = {}
    for partition, each in held.items():
        for stream, rows in list(each.rows.items()):
            found.setdefault(stream, []).append((partition, rows))
    return found
