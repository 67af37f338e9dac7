"""Every command of the command line."""

import argparse
from collections.abc import Iterator

from cli import main


def leaves(of: argparse.ArgumentParser | None = None) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command; a group of commands is none."""
    for action in (of or main.parser())._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, each in action.choices.items():
                found = [()] if each.get_default("run") is not None else leaves(each)
                yield from ((name, *words) for words in found)
