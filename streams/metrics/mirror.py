"""A copy of the gauges in another process, which serves readers of metrics and pages.

Decoding rows and writing hundreds of series takes tenths of a second. In the worker's process, answers to forecasts
would wait meanwhile. So a worker hands over only the changed rows, as bytes (`ChangeSource`), and the readers' process
decodes and writes them (`Mirror`).
"""

from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from time import monotonic, thread_time
from typing import Final, NamedTuple

from state.fence import Fence
from state.policies import Policies
from streams.faust.progress import Recovery, Standby
from streams.metrics.exposition import Exposition
from streams.metrics.gauges import Gauges
from streams.metrics.snapshot import PartitionSnapshot, StreamRows

#: How long a copy is used, as a multiple of the processor time of the worker's last answer.
KEPT: Final = 9.0
#: Seconds that a reader waits while another reader asks the worker.
PATIENCE: Final = 5.0
#: Seconds after an unanswered question during which nobody asks again, so that readers do not wait one after another.
SILENT: Final = 1.0


class ChangedRows(NamedTuple):
    """Changed rows of one stream in a partition. If there are no rows, the stream is gone."""

    partition: int
    stream: str
    changed: StreamRows


class Standing(NamedTuple):
    """State of a worker: why it does not serve, its progress of restoring, its copies, hanging transactions."""

    unready: str = ""
    recovery: Recovery = Recovery()
    copies: tuple[Standby, ...] = ()
    hanging: tuple[str, ...] = ()


class Overview(NamedTuple):
    """The part of an answer that does not belong to one stream. It comes last."""

    #: The metrics that do not belong to a stream, in Prometheus's text format.
    text: bytes = b""
    #: What each counter by stream has counted.
    counted: dict[str, dict[str, int]] = {}  # noqa: RUF012 - nobody changes it
    #: The encoded fence of each partition that is held.
    fences: dict[int, bytes] = {}  # noqa: RUF012 - as above
    #: Streams without series; None: the same as in the last answer.
    hidden: frozenset[str] | None = None
    #: When a batch was last committed, s since 1970; 0 if none has been.
    updated: float = 0.0
    #: State of the worker.
    standing: Standing = Standing()
    #: Processor time of the answer, s.
    cost: float = 0.0


Ask = Callable[[bool], Iterable[ChangedRows | Overview]]


class ChangeSource:
    """Returns what changed since the last call. It serves one mirror and one thread.

    ``text``: returns the metrics that do not belong to a stream.
    ``gauges``: holds the rows; None if there are no streams, as in intake and router.
    ``standing``: returns the state of the worker.
    """

    def __init__(
        self, text: Callable[[], bytes], gauges: Gauges | None = None, standing: Callable[[], Standing] = Standing
    ) -> None:
        self._text, self._gauges, self._standing = text, gauges, standing
        #: Rows as they were last handed over, by partition and stream.
        self._told: dict[int, dict[str, StreamRows]] = {}
        self._hidden: frozenset[str] = frozenset()

    def __call__(self, whole: bool) -> Iterator[ChangedRows | Overview]:  # noqa: FBT001 - see `Ask`
        """Yield the changed rows, or all if ``whole``, then the overview."""
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
                    yield ChangedRows(n, stream, {})
                if changed := {key: row for key, row in rows.items() if known.get(key) is not row}:
                    yield ChangedRows(n, stream, changed)
            for stream in before.keys() - now.keys():
                yield ChangedRows(n, stream, {})
        fences = {n: each.fence.encode() for n, each in held.items()}
        text, standing = self._text(), self._standing()
        if self._gauges is None:
            yield Overview(text, standing=standing, cost=thread_time() - used)
            return
        hidden, last = self._gauges.slots.hidden_streams, self._hidden
        self._hidden = hidden
        counted, told = self._gauges.counted(), hidden if whole or hidden != last else None
        yield Overview(text, counted, fences, told, self._gauges.updated, standing, thread_time() - used)


class Mirror:
    """A copy of a worker's gauges, made of its last answers.

    ``ask``: returns what changed since the last call, or everything if called with True.
    ``policies``: how streams are configured; None: there are no streams.
    ``app``: label of every series of streams; empty: no label.
    """

    def __init__(self, ask: Ask, policies: Policies | None = None, app: str = "") -> None:
        #: Overview of the last answer.
        self.overview = Overview()
        #: Streams without series.
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
        """Take what changed, unless the last answer is new enough; TimeoutError if the worker does not answer."""
        if not self._lock.acquire(timeout=PATIENCE):
            raise TimeoutError
        try:
            if monotonic() < self._silent:
                raise TimeoutError
            if monotonic() >= self._until:
                try:
                    self._take()
                except TimeoutError:
                    self._silent = monotonic() + SILENT
                    raise
        finally:
            self._lock.release()

    def _take(self) -> None:
        whole, self._whole = self._whole, True  # if this answer breaks off, the next one must be whole
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
        """Return everything in Prometheus's text format; raises as `refresh`. Only one thread at a time may ask."""
        self.refresh()
        if self._streams is None:
            return self.overview.text
        return self.overview.text + self._streams.text(self.held(), self.overview.counted)
