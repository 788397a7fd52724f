"""Elements of a large weight are read a part at a time, as loading all of it would show them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.dumps.model import Tensor
from ait_llm.match.programs import some_elements as reading
from ait_llm.match.programs.some_elements import some_elements


def weight_of(folder: Path, dtype: torch.dtype) -> Tensor:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(24, 37, bias=False)).to(dtype)
    with register_hook(model, DumpConfig(folder, weights=True)):
        model(torch.zeros(1, 24, dtype=dtype))
    (found,) = open_dump(folder).weights()
    return found


@pytest.mark.parametrize("rows", [None, [0, 5, 5, 36]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_part_at_a_time_gives_what_the_whole_weight_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, rows: list[int] | None
) -> None:
    monkeypatch.setattr(reading, "_PART", 400)
    weight = weight_of(tmp_path, dtype)
    places = np.array([0, 3, 4, 5, 23])
    found = some_elements(weight, None if rows is None else np.array(rows), places)
    whole = weight.nd().astype(np.float32)
    assert found is not None
    assert np.array_equal(found, (whole if rows is None else whole[rows])[:, places])


def test_rows_that_a_weight_does_not_have_are_left_to_who_loads_it(tmp_path: Path) -> None:
    weight = weight_of(tmp_path, torch.float32)
    assert some_elements(weight, np.array([37]), np.array([0])) is None
