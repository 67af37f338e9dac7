"""`trueup doctor`: what it says of the data directory; the rest is of a cluster, see tests/e2e."""

from pathlib import Path

import pytest

from cli import doctor


@pytest.mark.parametrize("name", ["/proc/x", "/proc/version/x"])
def test_a_data_directory_that_cannot_be_made_is_no_full_disk(name: str) -> None:
    (finding,) = doctor._disk(Path(name))
    assert finding.state == doctor.WRONG
    assert "cannot write in /proc" in finding.said


def test_a_data_directory_that_can_be_made_is_measured_and_left_as_it_is(tmp_path: Path) -> None:
    (finding,) = doctor._disk(tmp_path / "new" / "data")
    assert "GiB free" in finding.said
    assert not list(tmp_path.iterdir())
