"""Fuzz every target for a bounded time, following coverage: ``python -m tests.fuzz.run --seconds 60``.

A target runs in a process of its own, because libFuzzer ends it. What it finds is left in ``--out``, and belongs into
``corpus/`` together with the repair. Prints a table, and one JSON object as its last line.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
#: An input that takes longer is a finding, s; so is a process that takes more memory, MB.
SLOWEST, LARGEST = 5, 2048
#: Longest time for the start of a process, which imports all of it instrumented, s: minutes on a machine at work.
START = 900


def main() -> int:
    """Run what was asked for; the status is 1 if anything was found."""
    parser = argparse.ArgumentParser(description="Fuzz the decoders, the configuration and the command line.")
    parser.add_argument("--seconds", type=int, default=60, help="of each target (default: 60)")
    parser.add_argument("--out", type=Path, default=Path("trueup-fuzz"), help="where findings go")
    parser.add_argument("--target", help=argparse.SUPPRESS)
    parser.add_argument("--corpus", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.target:
        _fuzz(options.target, options.seconds, options.corpus, options.out)
    from tests.fuzz.targets import TARGETS, inputs  # noqa: PLC0415 - a fuzzing process imports it instrumented

    options.out.mkdir(parents=True, exist_ok=True)
    figures = {}
    print(f"{'target':<16} {'inputs':>12} {'seconds':>8} {'findings':>8}")
    for name in TARGETS:
        with tempfile.TemporaryDirectory(prefix="trueup-fuzz-") as corpus:
            for i, data in enumerate(inputs(name)):
                (Path(corpus) / str(i)).write_bytes(data)
            figures[name] = _run(name, options.seconds, corpus, options.out)
        tried, seconds, findings = figures[name]
        print(f"{name:<16} {tried:>12,} {seconds:>8.1f} {findings:>8}", flush=True)
    print(
        json.dumps(
            {name: dict(zip(("inputs", "seconds", "findings"), each, strict=True)) for name, each in figures.items()}
        )
    )
    return int(any(findings for _, _, findings in figures.values()))


def _run(name: str, seconds: int, corpus: str, out: Path) -> tuple[int, float, int]:
    """Fuzz one target in its own process; return inputs tried, seconds, and 1 if it found something."""
    began = monotonic()
    command = [sys.executable, "-m", "tests.fuzz.run", "--target", name, "--seconds", str(seconds), "--corpus", corpus]
    ended = subprocess.run(
        [*command, "--out", str(out.resolve())],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=seconds + START,
        check=False,
    )
    tried = re.search(r"stat::number_of_executed_units:\s*(\d+)", ended.stdout) or re.search(
        r"Done (\d+) runs", ended.stdout
    )
    if ended.returncode:
        (out / f"{name}.log").write_text(ended.stdout)
        print(f"{ended.stdout[-3000:]}\nended with {ended.returncode}", file=sys.stderr)
    return int(tried[1]) if tried else 0, round(monotonic() - began, 1), int(ended.returncode != 0)


def _fuzz(name: str, seconds: int, corpus: str, out: Path) -> None:
    """Fuzz one target in this process; does not return."""
    import atheris  # noqa: PLC0415 - only here: the targets run without it

    with atheris.instrument_imports(include=["agents", "cli", "replay", "state", "streams"]):
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415 - see above
    limits = [f"-max_total_time={seconds}", f"-timeout={SLOWEST}", f"-rss_limit_mb={LARGEST}", "-max_len=4096"]
    atheris.Setup(
        [sys.argv[0], corpus, *limits, "-print_final_stats=1", f"-artifact_prefix={out / name}-"],
        TARGETS[name].check,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
