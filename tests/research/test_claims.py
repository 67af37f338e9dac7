"""The table of claims: every verdict is one of three, and what is absent stands under the papers that were run."""

from pathlib import Path

from research.experiments.absent import ABSENT
from research.experiments.base import NOT_REPRODUCED, NOT_TRIED, REPRODUCED, VERDICTS, Claim, Section, judged
from research.experiments.report import absent, write


def test_what_was_not_tried_stands_under_its_paper(tmp_path: Path) -> None:
    tried = Claim("Kuleshov & Ermon", "Figure 2", "calibrated", "calibrated", judged(held=True))
    assert {each.paper for each in absent([tried])} == {"Kuleshov & Ermon"}
    report = write({"kuleshov-ermon": Section([], [], [], claims=[tried])}, tmp_path).read_text()
    assert report.index("Papers, claim by claim") < report.index("## ")
    assert "| Kuleshov & Ermon | Figure 2 | calibrated | calibrated | reproduced |" in report
    assert "Figure 3: question answering" in report
    assert "Forrester" not in report


def test_verdicts_are_three() -> None:
    assert (REPRODUCED, NOT_REPRODUCED, NOT_TRIED) == VERDICTS
    assert judged(held=False) == NOT_REPRODUCED
    assert all(each.verdict == NOT_TRIED for each in ABSENT)
