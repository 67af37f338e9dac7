"""An environment that other packages share is refused before anything of theirs is imported."""

import sys
from pathlib import Path

import pytest

import trueup


def test_packages_of_the_same_names_are_named_with_who_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trueup.shared() == ""
    metadata = tmp_path / "assistants-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: assistants\nVersion: 1.0\n")
    (metadata / "top_level.txt").write_text("agents\nassistants\n")
    monkeypatch.syspath_prepend(tmp_path)
    said = trueup.shared()
    assert "agents (assistants)" in said
    assert "Install trueup into an environment of its own: `pipx install`" in said


def test_ctrl_c_while_the_command_is_imported_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert trueup.main() == 130
