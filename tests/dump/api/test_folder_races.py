"""Ranks that start together make and clear folders at the same moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from ait_llm.dump.api.folders import remove_earlier
from ait_llm.dump.folders import make_folder


def test_a_step_that_another_rank_has_just_made_stays(tmp_path: Path) -> None:
    (tmp_path / "step0").mkdir()
    remove_earlier(tmp_path, "rank1")
    assert (tmp_path / "step0").is_dir()


def test_a_step_of_which_all_was_removed_goes(tmp_path: Path) -> None:
    (tmp_path / "step0" / "rank1").mkdir(parents=True)
    (tmp_path / "step0" / "rank1" / "dump.json").write_text("{}", encoding="utf-8")
    remove_earlier(tmp_path, "rank1")
    assert not (tmp_path / "step0").exists()


def test_a_parent_that_vanishes_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Path.mkdir
    vanished = []

    def mkdir(self: Path, *args: object, **kwargs: object) -> None:
        if self.name == "rank0" and not vanished:
            vanished.append(self.parent)
            self.parent.rmdir()
        made(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    make_folder(tmp_path / "step0" / "rank0")
    assert (tmp_path / "step0" / "rank0").is_dir()
    assert vanished
