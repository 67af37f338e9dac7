"""The rows of the report's tables. The templates decide how they look."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agents.status.number_format import score
from replay.report.figure import BEFORE, Series
from replay.report.sentences import learning
from replay.result import RAW, Contender, Result, drawn
from state.scoring.windows import KINDS
from streams.metrics import weights
from streams.metrics.segments import LARGE, LATELY, mark

#: Streams that are listed, those with most forecasts, and features; the JSON has more.
STREAMS: Final = 30
FEATURES: Final = 60
#: Segments of a stream and configuration that are shown; the JSON has more.
SEGMENTS: Final = 8

Drawn = Sequence[tuple[Series, Contender]]


def series(contender: Contender, found: Drawn) -> Series:
    """Return how a contender is drawn; those that are not have no line."""
    return next((each for each, one in found if one is contender), Series(contender.name, "none"))


def tables(result: Result, every: Drawn, found: Drawn) -> dict[str, Any]:
    """Return the rows of the tables of probabilities, of all contenders or of those that are drawn."""
    segments = [
        (which, stream, each) for which, stream, of in _segmented(found) for each in of["worst"][:SEGMENTS]
    ]  # fmt: skip
    edges = sorted({(band["low"], band["high"]) for *_, each in segments for band in each["calibrated"]["bands"]})
    return {
        "comparison": list(_comparison(every)),
        "ranks": list(_ranks(every, result)),
        "differences": _differences(result),
        "warmups": [(which, each) for which, one in every for each in learning(one)[:STREAMS] if each.warmup.issued],
        "worst": list(_worst(found)),
        "alerts": list(_alerts(found)),
        "banded": list(_bands(found)),
        "weighted": list(_weighted(found)),
        "features": list(_features(found))[:FEATURES],
        "functions": [
            (which, stream, each)
            for which, one in found
            for stream, of in one.streams.items()
            for each in of.functions[:FEATURES]
        ],
        "versions": [
            (which, stream, each) for which, one in found for stream, of in one.streams.items() for each in of.versions
        ],
        "segments": segments,
        "segments_said": _said(found),
        "segment_bands": [
            (which, stream, f"{each['segment']} = {each['value']}", [_band(each, at) for at in edges])
            for which, stream, each in segments
        ],
        "edges": [f"{low:g}–{high:g}" for low, high in edges],
        "recent": list(_recent(_segmented(found))),
        "streams": list(_streams(found)),
        "stream_heads": [
            f"{what} {name}" for what in ("ECE", "Brier") for name in (RAW, *(each.name for each, _ in found))
        ],
        "names": [RAW, *(each.name for each, _ in found)],
        "most": str(FEATURES),
    }


def _segmented(found: Drawn) -> Iterator[tuple[Series, str, Mapping[str, Any]]]:
    for which, one in found:
        for stream, of in one.streams.items():
            if of.segments:
                yield which, stream, of.segments


def _said(found: Drawn) -> str:
    """Return what to look for in the table of segments, with the mean error of the large ones."""
    said = (
        f"After the segment's warm-up, by the ECE of what was served above twice what chance gives; the {SEGMENTS} "
        "worst of each configuration. Off: mean served minus what came true, with its 95% interval as if outcomes were "
        "independent. The ECE is over 14 bands."
    )
    large = [(which, stream, of["large"]) for which, stream, of in _segmented(found) if of["large"]["segments"]]
    means = [
        f" {which.name}, {stream}: {' raw, '.join(score(of[kind]['mean_ece']) for kind in KINDS)} served."
        for which, stream, of in large
    ]
    return said + (f" Mean ECE of the segments with {LARGE:,} outcomes and more:{''.join(means)}" if means else "")


def _band(segment: Mapping[str, Any], at: tuple[float, float]) -> Mapping[str, Any] | None:
    return next((band for band in segment["calibrated"]["bands"] if (band["low"], band["high"]) == at), None)


def _comparison(every: Drawn) -> Iterator[tuple[Any, ...]]:
    """Yield a row a contender, and raw once for each set of forecasts that was resolved."""
    seen: list[Any] = []
    for which, one in every:
        overall = one.overall
        if not overall:
            continue
        if overall.raw not in seen:
            called = f"{RAW}, as {one.name} resolved them" if seen else RAW
            seen.append(overall.raw)
            yield Series(called, BEFORE.style), overall.raw, None
        yield which, overall.calibrated, overall


def _ranks(every: Drawn, result: Result) -> Iterator[tuple[Any, ...]]:
    """Yield raw, served and drawn forecasts with their intervals."""
    found = {(each.name, each.metric): each for each in result.intervals}
    kinds: list[tuple[Series, str, Any]] = []
    for which, one in every:
        if not one.overall:
            continue
        phase = one.overall.settled
        kinds = kinds or [(BEFORE, RAW, phase.raw)]
        kinds.append((which, one.name, phase.calibrated))
        if phase.draw:
            kinds.append((Series(drawn(one.name), "none"), drawn(one.name), phase.draw))
    for who, called, card in kinds:
        yield who, card, *(found.get((called, metric)) for metric in ("auc", "recall"))


def _differences(result: Result) -> list[tuple[Any, ...]]:
    pairs: dict[tuple[str, str], list[Any]] = {}
    for each in result.differences:
        pairs.setdefault((each.name, each.against), []).append(each)
    return list(pairs.items())


def _worst(found: Drawn) -> Iterator[tuple[Any, ...]]:
    for n, (which, one) in enumerate(found):
        windows = one.overall.worst if one.overall else {}
        if not n and windows.get("raw"):
            yield BEFORE, windows["raw"]
        if windows.get("calibrated"):
            yield which, windows["calibrated"]


def _alerts(found: Drawn) -> Iterator[tuple[Any, ...]]:
    """Yield what the threshold does before, after, and at equal volume."""
    for n, (which, one) in enumerate(found):
        of = one.overall.alerts if one.overall else None
        if not of:
            continue
        part = [raised / of.issued if of.issued else None for raised in (of.raw, of.calibrated)]
        if not n:
            yield BEFORE, of.threshold, of.raw, part[0], of.raw_precision, of.raw_recall
        yield which, of.threshold, of.calibrated, part[1], of.calibrated_precision, of.calibrated_recall
        yield Series("", "none"), of.equal_threshold, of.raw, part[0], of.equal_precision, of.equal_recall


def _bands(found: Drawn) -> Iterator[tuple[Any, ...]]:
    for which, one in found:
        for stream, of in one.streams.items():
            for each in of.bands["bands"] if of.bands else ():
                yield BEFORE, stream, each, each["raw"], None
                yield which, stream, each, each["calibrated"], each["keeps"]


def _weighted(found: Drawn) -> Iterator[tuple[Any, ...]]:
    """Yield series, stream, and the texts of a row of `streams.metrics.weights.rows`."""
    for which, one in found:
        for stream, of in one.streams.items():
            for row in weights.rows(of.weighted) if of.weighted else ():
                yield which, stream, row


def _features(found: Drawn) -> Iterator[tuple[Any, ...]]:
    """Yield stream, feature, and the bias of raw and of each contender."""
    by: dict[tuple[str, str], dict[int, Any]] = {}
    for i, (_, one) in enumerate(found):
        for stream, of in one.streams.items():
            for bias in of.features:
                by.setdefault((stream, bias.feature), {})[i] = bias
    for (stream, feature), each in by.items():
        served = [each[i].calibrated if i in each else None for i in range(len(found))]
        yield stream, feature, [next(iter(each.values())).raw, *served]


def _streams(found: Drawn) -> Iterator[tuple[Any, ...]]:
    """Yield each stream apart, where there are several."""
    largest = sorted(found[0][1].streams.values(), key=lambda each: (-each.issued, each.stream))
    for each in largest[:STREAMS] if len(largest) > 1 else ():
        others = [one.streams.get(each.stream) for _, one in found]
        cards = [each.raw, *(other.calibrated if other else None for other in others)]
        yield each, [getattr(card, what, None) for what in ("ece", "brier") for card in cards]


def _recent(found: Iterator[tuple[Any, str, Mapping[str, Any]]]) -> Iterator[tuple[Any, ...]]:
    """Yield the segments that are off at the end."""
    for which, stream, of in found:
        for each in of["recent"][:SEGMENTS]:
            yield which, stream, each, mark(each, of["of"])


def vectors(result: Result) -> dict[str, Any]:
    """Return the rows of the tables of classes and numbers."""
    found = [(one, of) for one in result.contenders for of in one.vectors.values()]
    segmented = [(Series(one.name, "none"), of.stream, of.segments) for one, of in found if of.segments]
    kinds = [of["of"] for _, _, of in segmented if of["worst"]]
    return {
        "vectors": [
            (of, one.name, figure, of.figures["raw"][figure], value)
            for one, of in found
            for figure, value in of.figures["calibrated"].items()
        ],
        "vector_differences": [(stream, each) for stream, of in result.vector_differences.items() for each in of],
        "vector_segments": [
            (stream, which.name, each, next(iter(each["difference"].values())))
            for which, stream, of in segmented
            for each in of["worst"][:SEGMENTS]
        ],
        "recent_vectors": list(_recent(iter(segmented))),
        "kinds": list(dict.fromkeys(kinds)),
        "lately_vectors": "".join(dict.fromkeys(LATELY[of["of"]] for _, _, of in segmented if of["recent"])),
    }


def origin(result: Result) -> dict[str, Any]:
    """Return the sources, the contenders, and the fates of the records."""
    files = result.manifest.get("files")
    spans = [
        (label, str(each.get("topic")), int(partition), *span, span[1] - span[0])
        for label, each in result.manifest.items()
        if isinstance(each, Mapping) and isinstance(each.get("offsets"), Mapping)
        for partition, span in each["offsets"].items()
    ]
    contenders = result.contenders
    alike = all(each.fates == contenders[0].fates for each in contenders)
    shown = contenders[:1] if alike else contenders
    fates = [
        (fate.replace("_", " "), [each.fates[fate] for each in shown]) for fate in (shown[0].fates if shown else ())
    ]
    for what, of in (("forecasts", "pending"), ("outcomes", "early")) if shown else ():
        fates.append((f"{what} still waiting at the end", [getattr(each, of) for each in shown]))
    return {
        "files": list(files.items()) if isinstance(files, Mapping) else [],
        "files_said": f"{'One table' if isinstance(files, Mapping) and 'table' in files else 'Two files'}, "
        f"{result.manifest.get('partitions', 1)} partition(s).",
        "topics": spans,
        "configurations": [
            (one.name, config, _called(one, config), recipe)
            for one in contenders
            for config, recipe in one.recipes.items()
        ],
        "fates": fates,
        "fates_of": ["Records"] if alike else [each.name for each in shown],
    }


def _called(contender: Contender, config: str) -> list[str]:
    """Return the streams, and the versions of a stream's model, that a configuration answered."""
    found = [stream for stream, each in contender.configs.items() if each == config]
    for stream, versions in contender.versions.items():
        found += [f"{stream}, version {name}" for name, each in versions.items() if each == config]
    return found
