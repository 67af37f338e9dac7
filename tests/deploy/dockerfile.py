"""The Dockerfile as its stages: what each begins with and does, in order."""

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DOCKERFILE: Final = ROOT / "deploy/Dockerfile"


@dataclass
class Stage:
    """One stage: the image or stage it begins with, and its instructions with their arguments."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def of(self, instruction: str) -> list[str]:
        """Return the arguments of every such instruction."""
        return [arguments for name, arguments in self.steps if name == instruction]

    def words(self, instruction: str) -> list[str]:
        """Return the words of an instruction in exec form, a JSON list; of several, those of the last."""
        words = json.loads(self.of(instruction)[-1])
        assert isinstance(words, list), instruction
        return words

    def variables(self, instruction: str = "ENV") -> dict[str, str]:
        """Return what ENV or LABEL instructions set."""
        pairs = (word.split("=", 1) for arguments in self.of(instruction) for word in shlex.split(arguments))
        return dict(pairs)

    def copied(self) -> list[tuple[str | None, list[str]]]:
        """Return for each COPY the stage it copies from (None: the project) and the paths."""
        found = []
        for arguments in self.of("COPY"):
            words = arguments.split()
            options = dict(word.removeprefix("--").split("=", 1) for word in words if word.startswith("--"))
            found.append((options.get("from"), [word for word in words if not word.startswith("--")][:-1]))
        return found


def stages() -> dict[str, Stage]:
    """Return the stages by name, in their order."""
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", DOCKERFILE.read_text()))
    found: dict[str, Stage] = {}
    for line in filter(None, map(str.strip, joined.splitlines())):
        instruction, arguments = line.split(maxsplit=1)
        if instruction == "FROM":
            base, _, name = arguments.split()
            found[name] = stage = Stage(name, base)
        elif found:
            stage.steps.append((instruction, arguments))
    return found


def chain(name: str) -> list[Stage]:
    """Return a stage and the stages it is built on, the nearest first. Together they make its image."""
    every = stages()
    found = [every[name]]
    while found[-1].base in every:
        found.append(every[found[-1].base])
    return found
