"""What several tests of audits need."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from streams.config.settings import Settings
from streams.records.output_schemas import text
from streams.sources.registry import Registry
from tests.replay.audit.partitions import RAW
from tests.streams.sources.registries import StandIn

IDS = {"calibrated": 1, "resolved": 2}


@pytest.fixture(scope="module")
def avro() -> Iterator[Settings]:
    """Yield settings of outputs in Avro."""
    held = {f"schemas/ids/{number}": {"schema": text(label)} for label, number in IDS.items()}
    with StandIn(held).apart() as url:
        yield replace(RAW, output_format="avro", schema_ids=IDS, registry=Registry(url))
