"""Which engine runs, and that the compiled one writes the same bytes."""

import os
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import state
from agents import compiled
from agents.compiled import PACKAGES, PLACE, ROOT, STAMP, handed_on, missing, prefer, runs, stamp
from state import kinds

#: The tests that say what bytes the engine writes, and those of what holds for each calibrator and score. By day the
#: sources are held against all other frozen outputs, and end-to-end tests hold the compiled engine against them.
FROZEN = (
    "tests/frozen/test_frozen.py::test_outputs_are_as_they_were_frozen[flights-20000]",
    "tests/frozen/test_frozen.py::test_outputs_are_as_they_were_frozen[vectors]",
    "tests/state/test_golden.py",
)
SAME_BYTES = ("tests/frozen/test_frozen.py", "tests/streams/records/test_decoding.py")
LAWS = (
    "tests/state/test_warm_up.py",
    "tests/state/scoring/test_comparison.py",
    "tests/state/scoring/test_scores.py",
    "tests/state/calibrators/test_laws.py",
    "tests/replay/test_agreement.py",
)


def tree(root: Path, content: str = "x = 1\n") -> Path:
    for package in PACKAGES:
        (root / package).mkdir(parents=True)
        (root / package / "a.py").write_text(content)
    return root


def test_a_checkout_compiles_itself_and_not_the_one_that_is_installed(tmp_path: Path) -> None:
    for name in ("deploy/compile.py", "agents/__init__.py", "agents/compiled.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    asked = f"import runpy; print(runpy.run_path({str(tmp_path / 'deploy/compile.py')!r})['ROOT'])"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == tmp_path


def test_stamp_tells_other_contents_and_other_names(tmp_path: Path) -> None:
    first, second = tree(tmp_path / "1"), tree(tmp_path / "2")
    assert stamp(first) == stamp(second)
    (second / "state" / "a.py").write_text("x = 2\n")
    assert stamp(first) != stamp(second)
    (second / "state" / "a.py").rename(second / "state" / "b.py")
    (second / "state" / "b.py").write_text("x = 1\n")
    assert stamp(first) != stamp(second)


def test_stale_copy_and_one_that_comes_too_late_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "PLACE", tmp_path)
    monkeypatch.setattr(sys, "modules", {"sys": sys})
    monkeypatch.setattr(sys, "path", [])
    assert "make compiled" in (missing({}) or "")
    (tmp_path / STAMP).write_text("of other sources")
    assert "changed" in (missing({}) or "")
    prefer({})
    assert sys.path == []
    with pytest.raises(ImportError, match="changed"):
        prefer({"TRUEUP_COMPILED": "yes"})
    for which in ("", " without optimisation"):
        (tmp_path / STAMP).write_text(stamp(ROOT) + which)
        assert missing({}) is None
    assert missing({"TRUEUP_COMPILED": "no"})
    prefer({})
    assert sys.path == [str(tmp_path)]
    monkeypatch.setitem(sys.modules, "state", state)
    assert "imported first" in (missing({}) or "")


def test_the_engine_that_runs_is_known_by_where_it_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "PLACE", tmp_path)
    assert not runs()
    monkeypatch.setattr(compiled, "PLACE", Path(kinds.__file__).parent)
    assert runs()
    monkeypatch.setattr(sys, "modules", {"sys": sys})
    assert not runs()


@pytest.mark.parametrize("asked", [None, "yes"])
def test_processes_run_the_engine_of_the_one_that_starts_them(
    monkeypatch: pytest.MonkeyPatch, asked: str | None
) -> None:
    monkeypatch.delenv("TRUEUP_COMPILED", raising=False)
    if asked:
        monkeypatch.setenv("TRUEUP_COMPILED", asked)
    with handed_on():
        # This process runs the sources unless it was told otherwise, whatever was compiled.
        assert os.environ["TRUEUP_COMPILED"] == "no"
    assert os.environ.get("TRUEUP_COMPILED") == asked


def test_a_class_is_compiled_with_its_base_or_neither_is() -> None:
    """A class of Python cannot have a compiled base. A compiled one that has a base of Python is slow."""
    listed = import_module("deploy.compile").HOT  # what it imports has no types
    hot, apart = {each.removesuffix(".py").replace("/", ".") for each in listed}, set[str]()
    found = [each.name for name in PACKAGES for each in pkgutil.walk_packages([str(ROOT / name)], f"{name}.")]
    for module in map(import_module, found):
        for each in vars(module).values():
            for base in each.__bases__ if isinstance(each, type) and each.__module__ in found else ():
                if base.__module__ in found and (base.__module__ in hot) != (each.__module__ in hot):
                    apart |= {base.__module__, each.__module__} - hot
    assert not apart, "add these modules to HOT in deploy/compile.py, or give their classes another base"


@pytest.fixture(scope="module")
def engine() -> str:
    """Return the file of the engine that a worker would run."""
    program = "import os; from agents.compiled import missing; from state import engine; "
    program += "print(missing(os.environ) or '', engine.__file__, sep='|')"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    reason, _, file = done.stdout.strip().partition("|")
    if reason:
        pytest.skip(reason)
    return file


def test_compiled_engine_is_the_one_that_runs(engine: str) -> None:
    assert Path(engine).is_relative_to(PLACE)
    assert not engine.endswith(".py")


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("files", [FROZEN, SAME_BYTES, LAWS], ids=["flights", "bytes", "laws"])
def test_compiled_engine_keeps_bytes_and_laws(files: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        env={**os.environ, "TRUEUP_COMPILED": "yes", "TIER": "night"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
