"""Outputs that stand in the topics and are not brought about again are counted, and the partition is named."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from agents.hearing import Hearing
from streams.faust.outputs import Heard
from streams.records.encoding import EncodedRecord


@pytest.mark.parametrize(("answering", "counted"), [(False, 2), (True, 0)])
def test_outputs_of_a_machine_that_computes_otherwise_are_counted_and_its_partition_is_logged(
    answering: bool,  # noqa: FBT001 - a parameter
    counted: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hearing, heard = Hearing(cast("Any", SimpleNamespace()), answering=answering), Heard()
    heard.said["calibrated"].extend([(b"a", b"{}"), (b"b", b"{}")])
    derived: EncodedRecord = b"a", b'{"p":.1}', None, []
    assert heard.unsaid("calibrated", [derived]) == [derived]
    hearing.compare(3, heard)
    assert hearing.unlike == counted
    assert ("output topics of partition 3" in caplog.text) == bool(counted)
