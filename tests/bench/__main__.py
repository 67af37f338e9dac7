"""All measurements of performance, one after another, each a process of its own.

``python -m tests.bench [--quick]``

Each does an amount of work that is counted, however long that takes. One that cannot go on says so and ends, and the
others follow. ``--quick`` is a part of each, five minutes of two idle cores. The last line is one JSON object: the
last lines of all.
"""

import argparse
import subprocess
import sys
import time

import orjson

from tests.bench.contenders import ROOT

#: Each with its arguments, and with those of ``--quick``; None: it is not part of that.
PARTS: dict[str, tuple[list[str], list[str] | None]] = {
    "throughput": ([], ["--repetitions", "1"]),
    "latency": ([], ["--rates", "1000,10000", "--seconds", "6", "--only", "default"]),
    "growth": ([], ["rows"]),
    "replay": (["--cpu"], ["--cpu", "--repeat", "2"]),
    "repartition": ([], None),
}


def main() -> int:
    """Measure; return 1 if anything has no figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a part of each, in five minutes")
    quick = parser.parse_args().quick
    found: dict[str, object] = {}
    failed = False
    for name, (all_of_it, part) in PARTS.items():
        arguments = part if quick else all_of_it
        if arguments is None:
            continue
        print(f"\n== {name} {' '.join(arguments)}", flush=True)
        began, last = time.monotonic(), b""
        command = [sys.executable, "-m", f"tests.bench.{name}", *arguments]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
            for line in process.stdout or ():
                last = line
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
        failed |= process.returncode != 0
        if last.startswith(b"{"):
            found[name] = orjson.loads(last)
        print(f"== {name}: {time.monotonic() - began:.0f} s, exit status {process.returncode}", flush=True)
    print(orjson.dumps(found).decode())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
