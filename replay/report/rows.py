"""The rows of the report's tables. Templates decide how they look."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from replay.report.figure import BEFORE, Series
from replay.report.sentences import learning
from replay.report.stream_tables import STREAMS
from replay.result import RAW, Contender, Result, drawn

#: The most features that are listed. The JSON has more.
FEATURES: Final = 60

Drawn = Sequence[tuple[Series, Contender]]


def series(contender: Contender, found: Drawn) -> Series:
    """Return how a contender is drawn. Contenders that are not drawn have no line."""
    return next((each for each, one in found if one is contender), Series(contender.name, "none"))


def tables(result: Result, every: Drawn, found: Drawn) -> dict[str, Any]:
    """Return the rows of tables about probabilities, for all contenders or only for those that are drawn."""
    return {
        "comparison": list(_comparison(every)),
        "ranks": list(_ranks(every, result)),
        "differences": _differences(result),
        "warmups": [(which, each) for which, one in every for each in learning(one)[:STREAMS] if each.warmup.issued],
        "worst": list(_worst(found)),
        "features": list(_features(found))[:FEATURES],
        "streams": list(_streams(found)),
        "stream_heads": [
            f"{what} {name}" for what in ("ECE", "Brier") for name in (RAW, *(each.name for each, _ in found))
        ],
        "names": [RAW, *(each.name for each, _ in found)],
        "most": str(FEATURES),
    }


def _comparison(every: Drawn) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each contender, and one for raw for each set of resolved forecasts."""
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
    """Yield raw, served and drawn forecasts, with their intervals."""
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
    """Yield a row for each stream, if there are several."""
    largest = sorted(found[0][1].streams.values(), key=lambda each: (-each.issued, each.stream))
    for each in largest[:STREAMS] if len(largest) > 1 else ():
        others = [one.streams.get(each.stream) for _, one in found]
        cards = [each.raw, *(other.calibrated if other else None for other in others)]
        yield each, [getattr(card, what, None) for what in ("ece", "brier") for card in cards]


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
    """Return the streams, and the versions of a stream's model, that a configuration has answered."""
    found = [stream for stream, each in contender.configs.items() if each == config]
    for stream, versions in contender.versions.items():
        found += [f"{stream}, version {name}" for name, each in versions.items() if each == config]
    return found
