"""What the program's own source never does: run or load what it was sent."""

import ast
import io
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from research import datasets

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("agents", "cli", "lab", "replay", "state", "streams")
#: Marshals what does not fit in memory into a temporary file, and reads it back in the same run. No worker loads it.
APART = {ROOT / "replay" / "spool.py"}
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path not in APART)
#: Modules that make objects of any kind out of bytes, or run what they are given.
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "code", "codeop", "yaml", "runpy"}
CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
#: Functions of modules that run a shell or load objects.
METHODS = {("os", "system"), ("os", "popen"), ("np", "load"), ("numpy", "load"), ("importlib", "import_module")}


def forbidden(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of what a source must not use."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names if each.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            yield node.lineno, str(node.module)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in CALLS:
                yield node.lineno, node.func.id
            if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
                name = node.func.value.id, node.func.attr
                if name in METHODS or (name[0] in MODULES):
                    yield node.lineno, ".".join(name)
            for keyword in node.keywords:
                if keyword.arg in {"shell", "allow_pickle"} and getattr(keyword.value, "value", True) is not False:
                    yield node.lineno, f"{keyword.arg}="


def test_no_source_runs_or_unpickles_what_it_was_given() -> None:
    found = {str(path.relative_to(ROOT)): list(forbidden(ast.parse(path.read_text()))) for path in SOURCES}
    assert len(found) > 300
    assert {path: each for path, each in found.items() if each} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "import yaml.loader",
        "eval(x)",
        "exec(x)",
        "__import__(x)",
        "os.system(x)",
        "np.load(x)",
        "subprocess.run(x, shell=True)",
        "subprocess.run(x, shell=y)",
        "np.fromfile(x, allow_pickle=True)",
    ],
)
def test_what_is_forbidden_is_found(text: str) -> None:
    assert list(forbidden(ast.parse(text)))


def test_what_a_worker_loads_unpickles_nothing_of_ours() -> None:
    program = "import cli.main, agents.worker, sys; sys.exit('research.datasets' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("numpy.testing", "rundocs"),
        ("numpy.testing._private.utils", "runstring"),
        ("numpy.core.multiarray", "scalar"),
        ("pandasx", "x"),
    ],
)
def test_the_table_of_the_experiments_calls_nothing_but_arrays(module: str, name: str) -> None:
    call = b"c" + module.encode() + b"\n" + name.encode() + b"\n."
    with pytest.raises(pickle.UnpicklingError, match="has no place in a table"):
        datasets._Frame(io.BytesIO(call)).load()


def test_private_names_of_faust_and_aiokafka_are_used_behind_the_wall_alone() -> None:
    using = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if "noqa: SLF001" in path.read_text() and path.parent != ROOT / "streams" / "faust"
    ]
    assert using == []


def test_private_names_of_faust_and_aiokafka_are_those_that_the_page_gives_reasons_for() -> None:
    used = set()
    for path in (ROOT / "streams" / "faust").glob("*.py"):
        lines = path.read_text().splitlines()
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
                marked = "SLF001" in "".join(lines[node.lineno - 1 : node.end_lineno])
                own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                used |= {node.attr} if marked and not own else set()
    page = (ROOT / "docs" / "explanation" / "changes.md").read_text()
    table = page.split("## Private names")[1].split("\n## ")[0]
    assert used == set(re.findall(r"`(_\w+)`", table))


def _literal(node: ast.expr, tree: ast.AST) -> ast.Tuple | None:
    """Return the tuple that an argument is, or that its name was assigned last; None if it is neither, or holds a *."""
    if isinstance(node, ast.Name):
        given = [each for each in ast.walk(tree) if isinstance(each, ast.Assign) and each.lineno < node.lineno]
        named = [each for each in given if isinstance(each.targets[0], ast.Name) and each.targets[0].id == node.id]
        node = max(named, key=lambda each: each.lineno).value if named else node
    if isinstance(node, ast.Tuple) and not any(isinstance(each, ast.Starred) for each in node.elts):
        return node
    return None


def test_what_new_builds_has_a_value_for_every_field() -> None:
    # `new` is `tuple.__new__`, so neither mypy nor Python counts the values.
    texts = {path: path.read_text() for path in SOURCES}
    fields = {
        node.name: sum(isinstance(each, ast.AnnAssign) for each in node.body)
        for text in texts.values()
        if "NamedTuple" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and any(getattr(base, "id", "") == "NamedTuple" for base in node.bases)
    }
    counted, wrong = 0, []
    for path, text in texts.items():
        tree = ast.parse(text) if "new(" in text else ast.Module([], [])
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "new" and len(node.args) == 2:
                name, values = getattr(node.args[0], "id", ""), _literal(node.args[1], tree)
                if values is not None and name in fields:
                    counted += 1
                    if len(values.elts) != fields[name]:
                        wrong.append(f"{path.relative_to(ROOT)}:{values.lineno}: {len(values.elts)} of {fields[name]}")
    assert wrong == []
    assert counted > 25
