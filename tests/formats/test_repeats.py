"""Files of a few bytes that describe tensors of any size."""

from pathlib import Path

import pytest
import torch

from ait_llm.errors import FormatError
from ait_llm.formats import read_torch
from ait_llm.formats.load import load
from ait_llm.formats.locate import locate
from ait_llm.formats.pth_payload import pth_payloads


def expanded(path: Path, *sizes: int) -> Path:
    torch.save(torch.ones(1).expand(*sizes), path)
    return path


def test_a_file_that_repeats_one_element_without_end_is_refused(tmp_path: Path) -> None:
    path = expanded(tmp_path / "a.pt", 1 << 40)
    for read in (locate, load, read_torch, pth_payloads):
        with pytest.raises(FormatError, match="stores 1 elements and describes 1099511627776"):
            read(path)


def test_steps_that_overlap_are_counted_like_steps_of_zero(tmp_path: Path) -> None:
    wide = torch.ones(1 << 16).as_strided((1 << 15, 1 << 15), (1, 1))
    torch.save(wide, tmp_path / "a.pt")
    with pytest.raises(FormatError, match="stores 65536 elements and describes 1073741824"):
        pth_payloads(tmp_path / "a.pt")


def test_many_expanded_tensors_count_together(tmp_path: Path) -> None:
    one = torch.ones(1)
    torch.save({str(n): one.expand(1 << 20) for n in range(300)}, tmp_path / "a.pt")
    with pytest.raises(FormatError, match="describes 314572800"):
        pth_payloads(tmp_path / "a.pt")


def test_files_that_torch_must_read_are_measured_too(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.save(torch.ones(1).expand(1 << 40), path, _use_new_zipfile_serialization=False)
    with pytest.raises(FormatError, match="describes 1099511627776"):
        read_torch(path)


def test_a_mask_expanded_to_all_heads_is_read(tmp_path: Path) -> None:
    mask = torch.ones(1, 1, 256, 256).expand(4, 32, 256, 256)
    torch.save(mask, tmp_path / "a.pt")
    assert locate(tmp_path / "a.pt") is not None
