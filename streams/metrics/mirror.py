"""What readers of metrics and pages see: a copy of what the gauges hold, in a process that is not the worker's.

Decoding rows and writing hundreds of series takes tenths of a second, and answers to forecasts would wait for the
interpreter meanwhile. So a worker hands over only the rows that changed, as the bytes that they are (`Source`). The
process of the readers decodes and writes them (`Mirror`).
"""

from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from time import monotonic, thread_time
from typing import Final, NamedTuple

from state.fence import Fence
from state.policy import Policies
from streams.faust.progress import Recovery
from streams.metrics.exposition import Exposition
from streams.metrics.gauges import Gauges
from streams.metrics.snapshot import PartitionSnapshot, StreamRows

#: How long a copy serves, in times the processor time that it took the worker to hand over what changed.
KEPT: Final = 9.0
#: How long a reader waits for others who ask the worker, s.
PATIENCE: Final = 5.0
#: How long after a question without an answer nobody asks again, s: so those who wait behind it do not wait in turn.
SILENT: Final = 1.0


class Rows(NamedTuple):
    """The rows of one stream that changed in a partition; without any the stream went."""

    partition: int
    stream: str
    changed: StreamRows


class Copy(NamedTuple):
    """A copy that a worker keeps of a partition that another serves; ``lag`` in records, None while it is unknown."""

    partition: int
    lag: int | None


class Standing(NamedTuple):
    """How a worker stands: why it does not serve, how far restoring is, its copies, transactions that hang."""

    unready: str = ""
    recovery: Recovery = Recovery()
    copies: tuple[Copy, ...] = ()
    hanging: tuple[str, ...] = ()


class Overview(NamedTuple):
    """What is not of one stream; it ends an answer.

    Attributes
    ----------
    text
        The metrics that are not of a stream, in Prometheus's text format.
    counted
        For each counter by stream, what it counted.
    fences
        The encoded fence of each partition that is held.
    hidden
        Streams that have no series; None: the same as in the answer before.
    updated
        When a batch was last committed, s since 1970; 0 if none was.
    standing
        How the worker stands.
    cost
        Processor time that the answer took, s.
    """

    text: bytes = b""
    counted: dict[str, dict[str, int]] = {}  # noqa: RUF012 - nobody changes it
    fences: dict[int, bytes] = {}  # noqa: RUF012 - as above
    hidden: frozenset[str] | None = None
    updated: float = 0.0
    standing: Standing = Standing()
    cost: float = 0.0


Ask = Callable[[bool], Iterable[Rows | Overview]]


class Source:
    """Says what changed since it was asked last; for one mirror, by one thread.

    Parameters
    ----------
    text
        Returns the metrics that are not of a stream.
    gauges
        Holds the rows; None: there are no streams, as of intake and router.
    standing
        Returns how the worker stands.
    """

    def __init__(
        self, text: Callable[[], bytes], gauges: Gauges | None = None, standing: Callable[[], Standing] = Standing
    ) -> None:
        self._text, self._gauges, self._standing = text, gauges, standing
        #: By partition and stream: the rows as they were handed over.
        self._told: dict[int, dict[str, StreamRows]] = {}
        self._hidden: frozenset[str] = frozenset()

    def __call__(self, whole: bool) -> Iterator[Rows | Overview]:  # noqa: FBT001 - see `Ask`
        """Yield the rows that changed, all if ``whole``, and the overview last."""
        used = thread_time()
        held = self._gauges.held() if self._gauges else {}
        self._told = {n: {} if whole else self._told.get(n, {}) for n in held}
        for n, each in held.items():
            now, before = dict(each.rows), self._told[n]
            self._told[n] = now
            for stream, rows in now.items():
                known = before.get(stream, {})
                if rows is known:
                    continue
                if known.keys() - rows.keys():
                    known = {}
                    yield Rows(n, stream, {})
                if changed := {key: row for key, row in rows.items() if known.get(key) is not row}:
                    yield Rows(n, stream, changed)
            for stream in before.keys() - now.keys():
                yield Rows(n, stream, {})
        fences = {n: each.fence.encode() for n, each in held.items()}
        text, standing = self._text(), self._standing()
        if self._gauges is None:
            yield Overview(text, standing=standing, cost=thread_time() - used)
            return
        hidden, last = self._gauges.hidden_streams, self._hidden
        self._hidden = hidden
        counted, told = self._gauges.counted(), hidden if whole or hidden != last else None
        yield Overview(text, counted, fences, told, self._gauges.updated, standing, thread_time() - used)


class Mirror:
    """What a worker's gauges hold, as the last answer had it.

    Parameters
    ----------
    ask
        Returns what changed since it was called last; everything, if it is called with True.
    policies
        How streams are configured; None: there are no streams.
    app
        The application, as a label of every series of streams; empty: none has it.

    Attributes
    ----------
    overview
        Of the last answer.
    hidden
        Streams that have no series.
    """

    def __init__(self, ask: Ask, policies: Policies | None = None, app: str = "") -> None:
        self.overview = Overview()
        self.hidden: frozenset[str] = frozenset()
        self._ask = ask
        self._streams = None if policies is None else Exposition(policies, app)
        self._held: dict[int, PartitionSnapshot] = {}
        self._lock = Lock()
        self._until, self._silent, self._whole = 0.0, 0.0, True

    def held(self) -> dict[int, PartitionSnapshot]:
        """Return the snapshot of each partition; another thread may replace its rows, which are bytes."""
        return dict(self._held)

    def refresh(self) -> None:
        """Take what changed, unless what was taken last is new enough.

        Raises
        ------
        TimeoutError
            If the worker does not answer.
        """
        if not self._lock.acquire(timeout=PATIENCE):
            raise TimeoutError
        try:
            if monotonic() < self._silent:
                raise TimeoutError
            if monotonic() >= self._until:
                self._ask_again()
        finally:
            self._lock.release()

    def _ask_again(self) -> None:
        try:
            self._take()
        except TimeoutError:
            self._silent = monotonic() + SILENT
            raise

    def _take(self) -> None:
        whole, self._whole = self._whole, True  # again, if the answer breaks off
        held = {} if whole else self._held
        for each in self._ask(whole):
            if isinstance(each, Overview):
                for n in [n for n in held if n not in each.fences]:
                    del held[n]
                for n, fence in each.fences.items():
                    held.setdefault(n, PartitionSnapshot(Fence())).fence = Fence.decode(fence)
                self._held, self.overview = held, each
                self.hidden = self.hidden if each.hidden is None else each.hidden
                self._until = monotonic() + KEPT * each.cost
            else:
                rows = held.setdefault(each.partition, PartitionSnapshot(Fence())).rows
                if each.changed:
                    rows[each.stream] = {**rows.get(each.stream, {}), **each.changed}
                else:
                    rows.pop(each.stream, None)
        self._whole = False

    def exposition(self) -> bytes:
        """Return everything in Prometheus's text format; one thread at a time may ask. Raises as `refresh`."""
        self.refresh()
        if self._streams is None:
            return self.overview.text
        return self.overview.text + self._streams.text(self.held(), self.overview.counted).encode()
