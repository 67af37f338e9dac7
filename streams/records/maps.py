"""Records in the topic of maps: the map that a partition now serves for a stream, and signs of life of its worker.

The key is the stream, or `ALIVE` for a sign of life. A map is JSON with these fields:

``stream``, ``partition``
    What it serves, and where.
``applied``
    Its version: records that the partition had applied. It never falls, because only what a checkpoint holds is
    written, and a worker that takes a partition up goes on from the last checkpoint.
``claim``
    Offset of the worker's claim in the changelog; a later worker has a larger one.
``calibrator``, ``config``, ``version``
    As in ``calibrated``; ``version`` is the number of outcomes learnt.
``at``, ``stream_time``
    The worker's clock when the map was made, and the newest event time by then, ms since 1970.
``certificate``
    Kind of forecast, events, and bound on the distance to calibration of what was served so far; null before the first.
``stages``
    What turns a raw forecast into what is served, in order: tables, ``{"x": …, "y": …}``, and corrections by segment.
``why``
    In place of ``stages``: why there is no map.
"""

from dataclasses import dataclass
from typing import Any, Final

import orjson

from state import maps
from state.maps import Corrections, Table
from state.policy import Policy
from state.scoring.certificate import certificate
from state.scoring.history import History
from state.segments import LIMIT, MISSING, OTHER, Dictionary
from state.served import Served

FORMAT: Final = 1
#: Key of the record that says that a partition's maps are up to date. No stream has this name.
ALIVE: Final = b"\0alive"
#: Kinds of forecast that a certificate may be about.
_KIND: Final = "calibrated"


@dataclass(frozen=True)
class MapHead:
    """The head of a map's record: all fields except the map."""

    stream: str
    partition: int
    claim: int
    applied: int
    stream_time: int
    at: int


def encode_map(place: MapHead, policy: Policy, served: Served, history: History | None, names: Dictionary) -> bytes:
    """Return the value of a map.

    ``policy``: a policy that allows a map, see `state.maps.why_not`.
    ``history``: scores of the stream; None before the first event.
    ``names``: slots of its segments; empty without segments.
    """
    made = {"certificate": _certificate(history), "stages": _stages(policy, served, names)}
    return orjson.dumps(_head(place, policy, served.calibrator.learnt) | made)


def encode_none(place: MapHead, policy: Policy, why: str) -> bytes:
    """Return the value of the record that says why there is no map."""
    return orjson.dumps(_head(place, policy, 0) | {"why": why})


def _head(place: MapHead, policy: Policy, version: int) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "stream": place.stream,
        "partition": place.partition,
        "applied": place.applied,
        "claim": place.claim,
        "calibrator": policy.calibrator,
        "config": policy.config,
        "version": version,
        "at": place.at,
        "stream_time": place.stream_time,
    }


def encode_alive(partition: int, claim: int, applied: int, at: int) -> bytes:
    """Return the value of the record that says that the maps of a partition were up to date at a time.

    ``at``: the worker's clock when it began to look, ms since 1970.
    """
    found = {"format": FORMAT, "partition": partition, "claim": claim, "applied": applied, "at": at}
    return orjson.dumps(found)


def _certificate(history: History | None) -> dict[str, Any] | None:
    scores = None if history is None else history.total
    if scores is None or not scores.n:
        return None
    distance = round(certificate(scores.ranking(_KIND)), 6)
    return {"kind": _KIND, "events": scores.n, "distance": distance}


def _stages(policy: Policy, served: Served, names: Dictionary) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for stage in maps.stages(served.calibrator):
        if isinstance(stage, Table):
            made.append(stage._asdict())
        elif policy.segments:
            made.append(_corrections(stage, names))
    return made


def _corrections(stage: Corrections, names: Dictionary) -> dict[str, Any]:
    values, combinations = names.given()
    return {
        "weight": stage.weight,
        "share": stage.share,
        "rows": {str(slot): [float(f"{each:.10g}") for each in row] for slot, row in sorted(stage.rows.items())},
        "names": names.names,
        "values": values,
        "pairs": [[names.names.index(one), names.names.index(other)] for one, other in names.pairs],
        "combinations": combinations,
        "slots": {"limit": LIMIT, "other": OTHER, "missing": MISSING},
        **maps.SHAPE,
    }
