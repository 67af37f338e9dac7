"""Outputs that stand in the topics and are not brought about again are counted, and the partition is named."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from agents.hearing import Hearing
from streams.faust.outputs import Heard
from streams.records.encoding import EncodedRecord


def test_outputs_of_a_machine_that_computes_otherwise_are_counted_and_its_partition_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hearing, heard = Hearing(cast("Any", SimpleNamespace())), Heard(("f", "o"))
    heard.said["calibrated"].extend([(b"a", b"{}"), (b"b", b"{}")])
    derived: EncodedRecord = b"a", b'{"p":.1}', None, []
    assert heard.unsaid("calibrated", [derived]) == [derived]
    heard.said["dead-letters"].append((b"c", b'{"topic":"o"}'))
    hearing.compare(3, heard)
    assert hearing.unlike == 3
    assert "output topics of partition 3" in caplog.text


@pytest.mark.parametrize("derived", [[], [(b"a", b'{"topic":"f"}', None, [])]])
def test_dead_letters_of_intake_and_router_and_their_raw_answers_are_not_this_workers(
    derived: list[EncodedRecord], caplog: pytest.LogCaptureFixture
) -> None:
    hearing, heard = Hearing(cast("Any", SimpleNamespace())), Heard(("f", "o"))
    heard.said["dead-letters"].append((None, b'{"topic":"payments","reason":"malformed"}'))
    heard.said["calibrated"].append((b"k", b'{"p":0.1,"dead_letter":{"topic":"payments"}}'))
    assert heard.unsaid("dead-letters", derived) == derived
    hearing.compare(3, heard)
    assert not hearing.unlike
    assert not caplog.text
