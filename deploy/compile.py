"""Compiles the hot modules with mypyc: ``python deploy/compile.py``. `agents.compiled` says when they are used.

The modules stay ordinary Python that mypy checks. Compiled, they take a record through decoding, ledger, calibrator and
scores in less time: docs/explanation/performance.md has figures. This needs a C compiler, Python's headers, and mypy
from the `dev` extra. ``--quick`` compiles each module into its own file, without optimisation. That is less than half
the work, on all processors; the engine does the same but is slower. Without ``--quick`` such an engine is compiled
again. The result is `.compiled/` beside `state/`. Without it everything runs interpreted, with the same results.
"""

import contextlib
import io
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mypyc.build import mypycify
from setuptools import Distribution
from setuptools.command.build_ext import build_ext

# The packages beside this file, not those of another checkout that may be installed in the environment.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agents.compiled import PACKAGES, PLACE, ROOT, STAMP, stamp

#: Modules that run once an event or once a batch. mypyc cannot compile generic tuples (`answer`, `forecasts`). All
#: calibrators are here, because a subclass of a compiled class has to be compiled, too.
HOT = (
    "state/scoring/ages.py",
    "state/banding.py",
    "state/scoring/band_counts.py",
    "state/scoring/bias.py",
    "state/scoring/cells.py",
    "state/chances.py",
    "state/scoring/comparison.py",
    "state/scoring/course.py",
    "state/counts.py",
    "state/counting.py",
    "state/coverage.py",
    "state/scoring/distribution.py",
    "state/scoring/equal.py",
    "state/draw.py",
    "state/effects.py",
    "state/engine.py",
    "state/entities.py",
    "state/evidence.py",
    "state/events.py",
    "state/expiry.py",
    "state/fence.py",
    "state/fold.py",
    "state/frames.py",
    "state/scoring/history.py",
    "state/kind.py",
    "state/kinds.py",
    "state/ledger.py",
    "state/marking.py",
    "state/odds.py",
    "state/quick.py",
    "state/scoring/losses.py",
    "state/scoring/ranking.py",
    "state/scoring/recent.py",
    "state/served.py",
    "state/scoring/segment_scores.py",
    "state/segments.py",
    "state/service.py",
    "state/services.py",
    "state/stream_counts.py",
    "state/scoring/scores.py",
    "state/tickets.py",
    "state/scoring/vector_history.py",
    "state/versions.py",
    "state/scoring/warm_up.py",
    "state/scoring/weighted.py",
    "state/scoring/windows.py",
    *(
        f"state/calibrators/{each.name}"
        for each in sorted((ROOT / "state/calibrators").glob("[a-z]*.py"))
        if each.stem != "answer"
    ),
    "state/router.py",
    "state/routes.py",
    "streams/records/encoding.py",
    "streams/records/merge.py",
    "streams/records/output_avro.py",
    "streams/records/output_json.py",
    "streams/records/decoding.py",
    "streams/records/fields.py",
    "streams/records/plain.py",
    "streams/records/routing.py",
    "streams/records/making.py",
    "streams/kafka/source_merge.py",
    "streams/sources/avro.py",
    "streams/sources/flat.py",
    "streams/sources/mapping.py",
    "streams/sources/shortcuts.py",
    "replay/taping.py",
)


QUICK = "--quick" in sys.argv[1:]
#: What mypyc remarks on a generator that it evaluates as a list. Here that is the same, and faster.
_REMARK = ": warning: Treating generator comprehension as list"


@contextlib.contextmanager
def _of_interest() -> Iterator[None]:
    """Pass on what is printed meanwhile, except for remarks that say nothing."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            yield
    finally:
        lines = said.getvalue().splitlines(keepends=True)
        print("".join(line for line in lines if _REMARK not in line), end="", flush=True)


class _Build(build_ext):  # type: ignore[misc]  # setuptools ships no type hints
    """Compiles as many files at a time as there are processors."""

    def build_extensions(self) -> None:
        if QUICK:
            self._read_headers_once()
        one = self.compiler.compile

        def several(sources: list[str], **options: object) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                return [made for each in pool.map(lambda source: one([source], **options), sources) for made in each]

        self.compiler.compile = several
        super().build_extensions()

    def _read_headers_once(self) -> None:
        """Precompile the headers of Python and mypyc, because 200 small files spend most of their time on reading them.

        Assertions of C are off, as in the product. Without optimisation, mypyc would turn them on.
        """
        first = self.extensions[0]  # all have the same options
        options = [each for each in first.extra_compile_args if each != "-UNDEBUG"]
        header = Path(self.build_temp, "all.h")
        header.write_text("#include <Python.h>\n#include <CPy.h>\n")
        paths = [f"-I{path}" for path in (*first.include_dirs, *self.include_dirs)]
        self.spawn([*self.compiler.compiler_so, *paths, *options, "-x", "c-header", str(header), "-o", f"{header}.gch"])
        for each in self.extensions:
            each.extra_compile_args = [*options, "-include", str(header)]


def main() -> int:
    """Compile into a new place, then move the result to its final place; return the exit status."""
    mark = stamp(ROOT)
    with contextlib.suppress(OSError):
        found, *without = (PLACE / STAMP).read_text().split(" ")
        if found == mark and (QUICK or not without):
            return 0
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        print(f"not compiled: there is no {compiler}, or no Python.h; everything runs interpreted, and the same")
        return 0
    print("compiling the engine, one to three minutes")
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "compiled"
        for package in PACKAGES:
            shutil.copytree(ROOT / package, place / package, ignore=shutil.ignore_patterns("__pycache__"))
        os.chdir(place)
        os.environ["MYPYPATH"] = str(place)
        # `make types` checks types. Here the stubs of some packages may be missing, as when an image is built.
        lenient = ["--ignore-missing-imports", "--no-warn-unused-ignores", "--no-warn-return-any"]
        options = ["--strict", "--explicit-package-bases", *lenient]
        with _of_interest():
            extensions = mypycify(
                [*HOT, *options],
                opt_level="0" if QUICK else "2",
                debug_level="0",
                multi_file=QUICK,
                target_dir=str(place / "build"),
            )
        distribution = Distribution({"name": "trueup-compiled", "ext_modules": extensions})
        distribution.cmdclass["build_ext"] = _Build
        build = distribution.get_command_obj("build_ext")
        build.inplace = True
        build.build_temp = str(place / "build")
        build.ensure_finalized()
        build.run()
        shutil.rmtree(place / "build")
        (place / STAMP).write_text(f"{mark} without optimisation" if QUICK else mark)
        shutil.rmtree(PLACE, ignore_errors=True)
        os.chdir(ROOT)
        shutil.move(place, PLACE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
