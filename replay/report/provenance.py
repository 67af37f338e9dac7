"""Where the figures come from: what was read, what ran, what became of every record."""

from collections.abc import Mapping, Sequence

from agents.status.markup import Child, join, tag
from agents.status.number_format import cell, count
from replay.report.figure import name
from replay.report.table import Table
from replay.result import Contender


def fates(contenders: Sequence[Contender]) -> Table:
    """Show what became of every record."""
    fates = list(contenders[0].fates)
    alike = all(each.fates == contenders[0].fates for each in contenders)
    shown = contenders[:1] if alike else contenders
    rows: list[Sequence[Child]] = [
        [fate.replace("_", " "), *(cell(each.fates[fate], count(each.fates[fate])) for each in shown)] for fate in fates
    ]
    rows.append(["forecasts still waiting at the end", *(cell(each.pending, count(each.pending)) for each in shown)])
    rows.append(["outcomes still waiting at the end", *(cell(each.early, count(each.early)) for each in shown)])
    head = ["", "Records"] if alike else ["", *(name(each.name) for each in shown)]
    return Table(
        "fates",
        "What became of every record",
        "Nothing is dropped without being counted.",
        head,
        rows,
    )


def sources(manifest: Mapping[str, object]) -> Table:
    """Show what was read: files with digests, or topics with offsets."""
    files = manifest.get("files")
    if isinstance(files, Mapping):
        rows = [
            [
                topic,
                tag("bdi", str(each["name"])),
                cell(each["bytes"], count(each["bytes"])),
                tag("code", str(each["blake2b"])),
            ]
            for topic, each in files.items()
        ]
        partitions = _whole(manifest.get("partitions"))
        said = "One table." if "table" in files else "Two files."
        return Table(
            "sources",
            "What was read",
            said if partitions == 1 else f"{said[:-1]}, shared out as {count(partitions)} partitions.",
            ["", "File", "Bytes", "BLAKE2b, 128 bits"],
            rows,
            2,
        )
    rows = []
    for label, each in manifest.items():
        if isinstance(each, Mapping) and isinstance(offsets := each.get("offsets"), Mapping):
            rows += [
                [
                    label,
                    tag("bdi", str(each.get("topic"))),
                    *(cell(n, str(n)) for n in (int(partition), *span, span[1] - span[0])),
                ]
                for partition, span in offsets.items()
            ]
    return Table(
        "sources",
        "What was read",
        "Topics, by partition: offsets from the first up to, not including, the end.",
        ["", "Topic", "Partition", "First", "End", "Offsets"],
        rows,
        2,
    )


def configurations(contenders: Sequence[Contender]) -> Table:
    """Show what ran: for each configuration its hashes, on which streams, and the recipe that each stands for."""
    rows = []
    for contender in contenders:
        for config, recipe in contender.recipes.items():
            mine = [stream for stream, each in contender.configs.items() if each == config]
            more = f" and {count(len(mine) - 3)} more" if len(mine) > 3 else ""
            shown = [part for stream in mine[:3] for part in (", ", name(stream))][1:]
            written = [part for piece in recipe.split(",") for part in (",", tag("wbr"), piece)][2:]
            rows.append([name(contender.name), tag("code", config), join(*shown, more), tag("code", *written)])
    return Table(
        "configurations",
        "What ran",
        "The hash stands in every calibrated record; the recipe is all that makes the calibrator.",
        ["Configuration", "Hash", "Streams", "Recipe"],
        rows,
        4,
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 1
