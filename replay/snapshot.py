"""A snapshot: the state of every partition at its last checkpoint, in one file.

The file is a tar. Its first member (`Manifest`) names the group, the progress of each partition, and a hash of each
other member. The others are one file for each partition, as audits write them (`replay.audit.checkpoint`). So an audit
can begin with a snapshot as with the files of an earlier audit.

The rows are read from the changelog, as when a worker restores them. So the group may go on running.
"""

import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b, file_digest
from io import BufferedReader, BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, Self

import orjson

from agents import __version__
from replay import signature
from replay.audit import checkpoint
from replay.audit.along import Reached
from replay.audit.output_matcher import Settled, Unauditable
from replay.audit.partition_verifier import LABELS, Derivation, Skips
from replay.audit.reader import PartitionReader, identities, named, width
from replay.audit.rows import Memory, fence_of
from replay.moves import is_derived
from replay.signature import SignatureError
from state import journal, kinds
from state.formats import ARITHMETIC
from state.frames import CorruptFrame
from state.journal import Entry, Last
from streams import atomic_file
from streams.config.settings import Settings

VERSION: Final = 1
#: Purpose of the signature, for ssh-keygen's -n.
NAMESPACE: Final = "trueup-snapshot"
_MANIFEST: Final = "manifest.json"
#: This many last entries of the journal are searched first, then twice as many, and so on.
_ENTRIES: Final = 64


class SnapshotError(Unauditable):
    """A snapshot cannot be taken, or cannot be used; the message says why."""


class SnapshotPart(NamedTuple):
    """Progress of a partition."""

    #: Hash of its file, in hexadecimal digits.
    digest: str
    #: Rows in the file.
    rows: int
    #: Records of both inputs that are in the rows.
    applied: int
    #: Next offset of forecasts and of outcomes.
    next: tuple[int, int]
    #: The last record of each input that is in the rows. If offsets differ, it is found by this.
    last: tuple[Last, Last]
    #: Number of the next entry of the journal.
    entry: int
    #: Next offset of the journal's topic.
    journal: int
    #: Next offsets of calibrated records, of resolved records and of dead letters.
    outputs: tuple[int, int, int]
    #: Hash of the configuration of the last records; empty if unknown.
    config: str
    #: Latest event time, ms.
    stream_time: int


@dataclass(frozen=True)
class Manifest:
    """What a snapshot contains."""

    #: ``TRUEUP_APP_ID``.
    application: str
    #: By label of the topic: its name, id of the cluster, id of the topic, and number of partitions.
    topics: Mapping[str, Sequence[Any]]
    partitions: tuple[SnapshotPart, ...]
    #: Time of the snapshot (ISO 8601), version of trueup, and version of its arithmetic.
    at: str
    build: str = __version__
    arithmetic: int = ARITHMETIC

    @property
    def applied(self) -> int:
        """Number of records that are in the snapshot."""
        return sum(place.applied for place in self.partitions)

    @property
    def rows(self) -> int:
        """How many it has."""
        return sum(place.rows for place in self.partitions)

    def shown(self) -> dict[str, Any]:
        """Return the manifest for JSON."""
        places = [each._asdict() | {"last": [list(last) for last in each.last]} for each in self.partitions]
        return asdict(self) | {"partitions": places}

    def encode(self) -> bytes:
        """Return the manifest as JSON with sorted keys, and with a hash of itself."""
        made = {"version": VERSION} | self.shown()
        return orjson.dumps(made | {"digest": _hash(made)}, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2)

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read what `encode` made. Raises ValueError, KeyError or TypeError if it is something else."""
        made = orjson.loads(value)
        if not isinstance(made, dict):
            raise TypeError("its manifest is not a JSON object")
        digest, version = made.pop("digest"), made.get("version")
        if digest != _hash(made):
            raise ValueError("it is damaged")
        if version != VERSION:
            raise ValueError(f"its format has version {version}, this program reads {VERSION}")
        del made["version"]
        return cls(**made | {"partitions": tuple(map(_place, made["partitions"]))})


def _place(made: Mapping[str, Any]) -> SnapshotPart:
    first, second = made["last"]
    tuples = {name: tuple(made[name]) for name in ("next", "outputs")}
    return SnapshotPart(**{**made, **tuples, "last": (Last(*first), Last(*second))})


def _hash(made: Mapping[str, Any]) -> str:
    return blake2b(orjson.dumps(made, option=orjson.OPT_SORT_KEYS), digest_size=32).hexdigest()


# -- take ------------------------------------------------------------------------------------------------------------


def take(settings: Settings, path: Path, key: Path | None = None) -> Manifest:
    """Write a snapshot of a group, which may run meanwhile.

    Raises SnapshotError if the group has no state or an incomplete one, or if the file cannot be signed. Raises
    Unauditable if topics are missing, or have records that no worker writes. Raises SettingsError if the file cannot be
    written. Raises KafkaError if the brokers do not answer.

    ``path``: the file to write; an old one is replaced.
    ``key``: ssh-keygen's private key, which signs it; None: it is not signed.
    """
    count = width(settings, named(settings, (*LABELS, "configurations")))
    topics = identities(settings)
    with TemporaryDirectory(prefix="trueup-snapshot-") as directory, PartitionReader(settings) as reader:
        files = [Path(directory) / f"partition-{n}" for n in range(count)]
        places = []
        for n, file in enumerate(files):
            of = {"application": settings.app_id, "partition": n, **topics}
            places.append(_taken(settings, reader, n, of, file))
        manifest = Manifest(settings.app_id, topics, tuple(places), datetime.now(UTC).isoformat(timespec="seconds"))
        if not manifest.applied:
            raise SnapshotError(
                f"{settings.changelog} has no state: is TRUEUP_APP_ID that of the workers? Rows are there once a "
                "worker has written its first checkpoint"
            )
        pack(path, manifest, files)
    if key is not None:
        try:
            signature.sign(path, key, NAMESPACE)
        except SignatureError as exc:
            raise SnapshotError(f"{path} is written, and not signed: {exc}") from exc
    return manifest


def pack(path: Path, manifest: Manifest, files: Sequence[Path]) -> None:
    """Write a snapshot of the files of its partitions; raises SettingsError if it cannot be written."""
    with atomic_file.written(path) as made, tarfile.open(fileobj=made, mode="w") as tar:
        said = manifest.encode()
        member = tarfile.TarInfo(_MANIFEST)
        member.size = len(said)
        tar.addfile(member, BytesIO(said))
        for file in files:
            tar.add(file, file.name)


def _taken(
    settings: Settings, reader: PartitionReader, partition: int, of: Mapping[str, Any], file: Path
) -> SnapshotPart:
    """Write the file of a partition."""
    held = reader.rows(partition)
    place = f"{settings.changelog}/{partition}"
    try:
        fence = fence_of(Memory(held))
        begun = journal.read(lambda row: held.get(row) if row == kinds.JOURNAL.key() else None)
    except CorruptFrame as exc:
        raise SnapshotError(f"{place} is damaged, or a command has not finished writing it: {exc}") from exc
    rows = Memory({row: value for row, value in sorted(held.items()) if is_derived(row)})
    at, config = _in_journal(reader, partition, begun.number)
    recorded = reader.in_force(partition)
    if not config:
        config = next((bytes.fromhex(each.digest) for each in recorded[::-1] if each.applied < fence.applied), b"")
    said = begun.said if begun.number else _since(settings, reader, partition)
    outputs = tuple(Settled(each) for each in said)
    derivation = Derivation(rows, outputs, Reached(at), config, skips=Skips(said[2]))
    checkpoint.write(file, of, recorded, derivation)
    with file.open("rb") as written:
        digest = _digest(written)
    first, second = fence.next
    last = begun.last
    applied, time = fence.applied, fence.stream_time
    return SnapshotPart(digest, len(rows), applied, (first, second), last, begun.number, at, said, config.hex(), time)


def _in_journal(reader: PartitionReader, partition: int, number: int) -> tuple[int, bytes]:
    """Return the next offset of the journal after a checkpoint, and the configuration in force there.

    If the journal does not name the checkpoint, return its first offset and no configuration.
    """
    place, entries = reader.place("journal", partition), _ENTRIES
    first, begin = reader.extents([place])[place]
    while begin > first and number:
        begin, end, entries = max(first, begin - entries), begin, 2 * entries
        (records,) = reader.stretches({place: (begin, end)})
        for record in records:
            try:
                entry = Entry.decode(record.value or b"")
            except CorruptFrame as exc:
                raise SnapshotError(f"{place.topic}/{partition} offset {record.offset}: {exc}") from exc
            if entry.number == number:
                return record.offset + 1, entry.config
    return first, b""


def _since(settings: Settings, reader: PartitionReader, partition: int) -> tuple[int, int, int]:
    """Return where a partition's outputs begin if no worker has written a checkpoint."""
    loaded = reader.loaded(partition)
    return (0, 0, 0) if loaded is None else loaded.begins(settings.outputs)


# -- use -------------------------------------------------------------------------------------------------------------


def read(path: Path, signers: Path | None = None) -> Manifest:
    """Return the manifest of a snapshot.

    Raises SnapshotError if the signature is invalid, or if the file is damaged, of a different version, or not a
    snapshot.

    ``signers``: who may have signed it, see `replay.signature.verify`; None: anybody.
    """
    if signers is not None:
        try:
            signature.verify(path, signers, NAMESPACE)
        except SignatureError as exc:
            raise SnapshotError(f"the snapshot {path} is not used: {exc}") from exc
    with _opened(path) as tar:
        return Manifest.decode(_member(tar, _MANIFEST).read())


def unpack(path: Path, manifest: Manifest, directory: Path) -> None:
    """Write the files of a snapshot, one for each partition, unless they exist; raises `SnapshotError`."""
    with _opened(path) as tar:
        for n, place in enumerate(manifest.partitions):
            to = directory / f"partition-{n}"
            if to.exists():
                continue
            rows = _member(tar, to.name)
            if _digest(rows) != place.digest:
                raise ValueError(f"its rows of partition {n} are damaged")
            rows.seek(0)
            with atomic_file.written(to) as written:
                shutil.copyfileobj(rows, written)


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            yield tar
    except OSError as exc:
        raise SnapshotError(f"cannot read the snapshot {path}: {exc.strerror or exc}") from exc
    except (tarfile.TarError, ValueError, KeyError, TypeError) as exc:
        raise SnapshotError(f"the snapshot {path} cannot be used: {exc}") from exc


def require_same(path: Path, manifest: Manifest, settings: Settings) -> None:
    """Require that a snapshot belongs to this group and its topics; raises `SnapshotError`."""
    if manifest.application != settings.app_id:
        raise SnapshotError(f"the snapshot {path} is of application {manifest.application}, not of {settings.app_id}")
    now = identities(settings)
    for label in now.keys() | manifest.topics.keys():
        if manifest.topics.get(label) != now.get(label):
            raise SnapshotError(
                f"the snapshot {path} is of other topics: {label} was {manifest.topics.get(label)}, and is "
                f"{now.get(label)}. A group that 'trueup state restore' made of it is audited without --from"
            )


def _member(tar: tarfile.TarFile, name: str) -> BufferedReader:
    found = tar.extractfile(name)
    if not isinstance(found, BufferedReader):
        raise TypeError(f"its {name} is no file")
    return found


def _digest(file: BufferedReader) -> str:
    """Return the hash of a file's content."""
    return file_digest(file, partial(blake2b, digest_size=32)).hexdigest()
