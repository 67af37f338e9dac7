"""What outputs cost to write: JSON against the formats with a schema, and Avro by the library alone.

``python -m tests.bench.outputs``

Answers and joined forecasts of one probability each, as most are; answers that carry two fields; and those of ten
quantiles, which the library writes in either case. Each figure is the least of 15 runs, in us of processor time a
record. The last line is one JSON object.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from time import process_time
from typing import Any

from agents import compiled
from state.events import Calibrated, Carried, Resolved
from state.forecasts import Quantiles
from streams.config.settings import OUTPUT_FORMATS
from streams.records.decoding import encode_calibrated, encode_resolved
from streams.records.output_formats import values
from streams.records.output_schemas import KINDS
from tests.bench.figures import table

RECORDS, RUNS = 5_000, 15
NOW = 1_700_000_000_000
CARRIED = Carried((), b'{"shop":"s-4711","device":"d-17"}')


def answers(carried: Carried | None) -> list[Calibrated]:
    """Return answers of one probability."""
    return [
        Calibrated(
            b"k", f"event-{i:08d}", "cards-DE", i / RECORDS, i / 7e4, i / 6e4, "prudent", "8d1fa2c0", i, NOW + i, 2 * i
        )._replace(carried=carried)
        for i in range(RECORDS)
    ]


def numbers() -> list[Calibrated]:
    """Return answers of ten quantiles."""
    levels = tuple((i + 0.5) / 10 for i in range(10))
    laws = [Quantiles(levels, tuple(n / RECORDS + i / 3 for i in range(10))) for n in range(RECORDS)]
    return [each._replace(raw=law, p=law, draw=law) for each, law in zip(answers(None), laws, strict=True)]


def written(encode: Callable[[Any], bytes], records: Sequence[Any]) -> int:
    """Encode records and return their bytes."""
    return sum(len(encode(each)) for each in records)


def joined() -> list[Resolved]:
    """Return joined forecasts."""
    return [
        Resolved(
            b"k", a.event_id, a.stream, a.raw, a.p, a.draw, 1.0, a.calibrator, a.version, NOW, NOW + 9, 0, implied=False
        )
        for a in answers(None)
    ]


def main() -> None:
    """Measure, and print the table and the JSON line."""
    makers = {form: made for form in KINDS if (made := values(form, {"calibrated": 7, "resolved": 8})) is not None}
    kinds: dict[str, tuple[Sequence[Any], str]] = {
        "calibrated": (answers(None), "calibrated"),
        "calibrated, 2 carried": (answers(CARRIED), "calibrated"),
        "calibrated, 10 quantiles": (numbers(), "calibrated"),
        "resolved": (joined(), "resolved"),
    }
    found: dict[str, dict[str, float]] = {}
    for name, (records, label) in kinds.items():
        as_json: Callable[[Any], bytes] = encode_calibrated if label == "calibrated" else encode_resolved
        said = [as_json(each) for each in records]
        ways = {"json": partial(written, as_json, records)}
        ways |= {form: partial(written, getattr(made, label), records) for form, made in makers.items()}
        ways["avro by the library"] = partial(written, partial(makers["avro"].of_json, label), said)
        best = dict.fromkeys(ways, float("inf"))
        sizes = {f"{way} bytes": ways[way]() / RECORDS for way in OUTPUT_FORMATS}
        for _ in range(RUNS):
            for way, run in ways.items():  # one after another, so that what else runs here meets all alike
                began = process_time()
                run()
                best[way] = min(best[way], (process_time() - began) / RECORDS * 1e6)
        found[name] = {**best, **sizes}
    columns = list(next(iter(found.values())))
    print(f"engine: {'compiled' if compiled.runs() else 'interpreted'}; us a record")
    print(table(["records", *columns], [[name, *(f"{one[c]:.2f}" for c in columns)] for name, one in found.items()]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
