"""The pages of the reference say what the program does."""

import re

import pytest

from cli import reference
from streams.config import stream_config


@pytest.mark.parametrize("name", reference.pages())
def test_a_page_of_the_reference_is_up_to_date(name: str) -> None:
    assert (reference.FOLDER / name).read_text() == reference.pages()[name], "run 'make docs'"


@pytest.mark.parametrize("unknown", ["k = 1", "[streams.a]\nk = 1", "[streams.a]\npoints = {k = 1}"])
def test_every_key_of_the_streams_file_is_in_its_page(unknown: str) -> None:
    page = reference.pages()["streams-file.md"]
    with pytest.raises(ValueError, match="there are: ") as refused:
        stream_config.parse(unknown, "prudent")
    for key in str(refused.value).split("there are: ")[1].split(", "):
        assert re.search(rf"\b{key}( =|\b.*\])", page), key
