"""Parts of parameters that operators are given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from memory_runs import array_tensor

from ait_llm.dumps.model import Tensor
from ait_llm.dumps.tensors import Identity
from ait_llm.match.programs.weight_parts import part_of
from ait_llm.match.views import apply

WHOLE = torch.arange(4 * 6 * 5).view(4, 6, 5)


def _saved(storage_offset: int = 0) -> Tensor:
    """The parameter, ``[4, 6, 5]``, from some element of its storage on."""
    identity = Identity(1, 0, storage_offset, (30, 5, 1))
    return replace(array_tensor("in", 0, WHOLE.numpy()), identity=identity)


def _record(tensor: torch.Tensor) -> dict[str, object]:
    place = list(tensor.shape), list(tensor.stride()), tensor.storage_offset()
    return {"name": "w", **dict(zip(("shape", "stride", "offset"), place, strict=True))}


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("is_turned", [False, True])
def test_one_of_several_is_known_by_its_number_and_seen_as_it_lies(
    number: int, is_turned: bool
) -> None:
    given_ = WHOLE[number].t() if is_turned else WHOLE[number]
    part = part_of(_record(given_))
    assert part is not None
    assert part.number(_saved()) == number
    views = part.views(_saved())
    assert views is not None
    np.testing.assert_array_equal(apply(WHOLE.numpy(), views), WHOLE[number].numpy())


@given(st.integers(0, 3), st.integers(0, 6), st.integers(1, 6))
def test_rows_of_one_of_several_are_these_rows(number: int, start: int, count: int) -> None:
    rows = WHOLE[number, start : start + count]
    part = part_of(_record(rows))
    assert part is not None
    views = part.views(_saved())
    if rows.numel():
        assert views is not None
        np.testing.assert_array_equal(apply(WHOLE.numpy(), views), rows.numpy())
    else:
        assert views is None
    if count < 6:
        assert part.number(_saved()) is None


def test_a_parameter_within_a_larger_storage_begins_where_it_lies() -> None:
    storage = torch.arange(7 + 4 * 6 * 5)
    whole = storage[7:].view(4, 6, 5)
    part = part_of(_record(whole[2]))
    assert part is not None
    assert part.number(_saved(7)) == 2


@pytest.mark.parametrize(
    "looked_at", [WHOLE[:, 1], WHOLE[1, :, :2], WHOLE[::2]], ids=["column", "some", "every other"]
)
def test_what_is_no_stretch_of_a_parameter_has_no_views(looked_at: torch.Tensor) -> None:
    part = part_of(_record(looked_at))
    assert part is not None
    assert part.views(_saved()) is None
    assert part.number(_saved()) is None


def test_elements_across_two_blocks_have_no_views() -> None:
    part = part_of(_record(WHOLE.reshape(-1)[25:55].view(6, 5)))
    assert part is not None
    assert part.views(_saved()) is None
    assert part.number(_saved()) is None


@pytest.mark.parametrize("word", ["name", "shape", "stride", "offset"])
def test_a_record_that_does_not_say_all_says_nothing(word: str) -> None:
    record = _record(WHOLE[1])
    del record[word]
    assert part_of(record) is None
