"""The certificate of the records beside that of the state: two programs, the same digits."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cli import certificate
from state.scoring import certificate as kept
from state.scoring.cells import EDGES, FINE
from state.scoring.ranking import Ranking
from state.scoring.scores import SCORED, Scores
from tests.commands import Trueup

P = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.1, 0.25, 0.9, 1.0, *EDGES[::20]]))
CELLS = st.dictionaries(
    st.integers(0, FINE - 1), st.tuples(st.integers(0, 5000), st.integers(0, 5000)).filter(any), min_size=1
)


def resolved(event: int, raw: float, p: float, draw: float, y: int, revision: int = 0) -> str:
    return json.dumps(
        {
            "event_id": f"e{event}",
            "stream": "s",
            "raw": raw,
            "p": p,
            "draw": draw,
            "y": y,
            "issued_ts": 1,
            "revision": revision,
        }
    )


def test_cells_are_those_of_the_state() -> None:
    assert tuple(certificate.EDGES) == (0.0, *EDGES, 1.0)


@given(CELLS)
def test_certificate_has_the_digits_of_the_state(cells: dict[int, tuple[int, int]]) -> None:
    zeros, ones = ([cells.get(c, (0, 0))[label] for c in range(FINE)] for label in (0, 1))
    assert certificate.certificate({c: list(n) for c, n in cells.items()}) == kept.certificate(Ranking(zeros, ones))


@given(st.lists(st.tuples(P, P, P, st.integers(0, 1)), min_size=1, max_size=30))
def test_records_give_the_digits_of_their_scores(events: list[tuple[float, float, float, int]]) -> None:
    scores = Scores()
    for raw, p, draw, y in events:
        scores.observe(raw, p, float(y), draw)
    found = certificate.verify(resolved(i, *event) for i, event in enumerate(events))["s"]
    for kind in SCORED:
        assert found[kind] == (len(events), kept.certificate(scores.ranking(kind)))


def test_last_revision_of_an_event_counts_in_any_order_and_a_repeated_record_once() -> None:
    records = [resolved(1, 0.2, 0.3, 0.3, 0, 2), resolved(1, 0.2, 0.3, 0.3, 1), resolved(2, 0.2, 0.3, 0.3, 1)]
    alone = certificate.verify([resolved(1, 0.2, 0.3, 0.3, 0), resolved(2, 0.2, 0.3, 0.3, 1)])
    assert certificate.verify([*records, *records]) == alone
    assert alone["s"]["raw"][0] == 2


def test_records_of_classes_and_numbers_have_no_certificate() -> None:
    vectors = {"event_id": "e", "stream": "s", "raw": [0.5, 0.5], "probs": [0.4, 0.6], "draw": [0.4, 0.6], "y": 1}
    assert certificate.verify([json.dumps({**vectors, "issued_ts": 1, "revision": 0})]) == {}


def test_a_record_of_another_kind_is_named_by_its_number(tmp_path: Path, trueup: Trueup) -> None:
    path, one = tmp_path / "calibrated.jsonl", resolved(0, 0.2, 0.3, 0.3, 0)
    for record, said in (('{"stream": "s", "event_id": "e"}', "it has no 'issued_ts'"), ("y", "Expecting value")):
        path.write_text(f"{one}\n{record}\n")
        ended = trueup(f"audit --certificate {path}")
        assert ended.status == os.EX_DATAERR
        assert ended.error.startswith(f"trueup: {path}, record 2: {said}")
        assert ended.error.endswith("; a certificate is of records of the topic resolved")


def test_verify_imports_the_standard_library_only_and_has_at_most_60_lines() -> None:
    text = Path(certificate.__file__).read_text()
    tree = ast.parse(text)
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert modules
    assert {name.split(".")[0] for name in modules if name} <= sys.stdlib_module_names
    documented = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.FunctionDef)]
    said = "\n".join(ast.get_docstring(node, clean=False) or "" for node in documented).splitlines()
    assert sum(map(bool, map(str.strip, text.splitlines()))) - sum(map(bool, map(str.strip, said))) <= 60


def test_command_reads_a_file_and_the_program_alone_reads_its_input(tmp_path: Path, trueup: Trueup) -> None:
    path = tmp_path / "resolved.jsonl"
    path.write_text("\n".join(resolved(i, 0.2, 0.25, 0.3, int(i % 4 == 0)) for i in range(40)))
    found = trueup(f"audit --certificate {path} --json").json
    assert found["s"]["raw"][0] == 40
    with path.open() as records:
        alone = subprocess.run(
            [sys.executable, "-I", certificate.__file__], stdin=records, capture_output=True, text=True, check=True
        )
    assert json.loads(alone.stdout) == found
    assert f"s: raw, 40 events: at most {found['s']['raw'][1]} from" in trueup(f"audit --certificate {path}").out
