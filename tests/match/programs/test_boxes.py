"""Boxes against NumPy: each is the places that NumPy finds when it moves the places themselves."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from ait_llm.match.programs.atoms import TOKEN, Atoms
from ait_llm.match.programs.boxes import Box, whole
from ait_llm.match.programs.likeness import laid_out
from ait_llm.match.views import apply

Places = NDArray[np.int64]
SHAPES = ((4, 6), (2, 3, 8), (1, 12, 2), (3, 4, 2, 2))


def places(box: Box) -> Places:
    """What a box says, element by element."""
    dims = []
    for dim in box.dims:
        found = [0]
        for size, stride in dim:
            found = [place + step * stride for place, step in product(found, range(size))]
        dims.append(found)
    total = [box.offset + sum(steps) for steps in product(*dims)]
    return np.array(total, np.int64).reshape(box.shape)


def _moved(box: Box, array: Places, draw: random.Random) -> tuple[Box | None, Places, str]:
    rank = array.ndim
    kind = draw.choice(("view", "permute", "narrow", "expand", "step"))
    if kind == "view":
        flat = [draw.choice([n for n in range(1, array.size + 1) if array.size % n == 0])]
        shape = (*flat, array.size // flat[0])
        return box.view(shape), array.reshape(shape), kind
    if kind == "permute":
        axes = draw.sample(range(rank), rank)
        return box.permuted(axes), array.transpose(axes), kind
    if kind == "expand":
        shape = (draw.randint(1, 3), *array.shape)
        return box.expanded(shape), np.broadcast_to(array, shape), kind
    dim = draw.randrange(rank)
    size, step = array.shape[dim], 2 if kind == "step" else 1
    start = draw.randrange(size)
    part = array[(slice(None),) * dim + (slice(start, None, step),)]
    return box.narrowed(dim, start, part.shape[dim], step), part, kind


@pytest.mark.parametrize("seed", range(40))
def test_a_chain_of_movements_is_what_numpy_makes_of_it(seed: int) -> None:
    draw = random.Random(seed)
    shape = draw.choice(SHAPES)
    box, array = whole(1, shape), np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    for _ in range(6):
        if array.size > 200 or array.size < 2:
            break
        moved, array, kind = _moved(box, array, draw)
        if moved is None:  # strides do not say everything
            assert kind in ("view", "narrow", "step")
            break
        box = moved
        assert box.shape == array.shape
        assert np.array_equal(places(box), array)


def test_heads_apart_turned_and_joined_again_are_where_they_were() -> None:
    start = whole(1, (2, 5, 24))
    heads = start.view((2, 5, 4, 6))
    assert heads is not None
    back = heads.permuted((0, 2, 1, 3)).permuted((0, 2, 1, 3)).view((2, 5, 24))
    assert back == start


@pytest.mark.parametrize("seed", range(20))
def test_views_lead_from_a_tensor_to_its_elements_in_their_order(seed: int) -> None:
    draw = random.Random(seed)
    axes = draw.sample(range(3), 3)
    whole_box = whole(1, (4, 6, 5)).permuted(axes)
    part = whole(1, (4, 6, 5)).narrowed(1, draw.randrange(3), 3)
    assert part is not None
    views = laid_out(whole_box, part.elements, 0)
    assert views is not None
    array = np.arange(120).reshape(4, 6, 5).transpose(axes)
    assert np.array_equal(apply(array, views), np.sort(places(part).reshape(-1)))


def test_a_stretch_of_columns_of_one_tensor_is_another_tensor() -> None:
    atoms = Atoms()
    joined, query = whole(atoms.new(), (7, 12)), whole(atoms.new(), (7, 4))
    columns = joined.narrowed(1, 4, 4)
    assert columns is not None
    atoms.anchor(columns, query, tokens=False)
    turned, inside = query.permuted((1, 0)), columns.permuted((1, 0))
    assert atoms.resolved(inside) == atoms.resolved(turned)
    others = joined.narrowed(1, 3, 4)
    assert others is not None
    assert atoms.resolved(others) == others  # it reaches beyond


def test_tokens_of_heads_that_stand_before_them_are_rows() -> None:
    batch, heads, seq, dim = 3, 4, 5, 6
    tokens = Box(1, 0, (((batch * seq, TOKEN),), ((heads * dim, 1),)))
    apart = tokens.view((batch, seq, heads, dim))
    assert apart is not None
    views = laid_out(apart.permuted((0, 2, 1, 3)), tokens.elements, batch * seq)
    assert views is not None
    array = np.arange(batch * heads * seq * dim).reshape(batch, heads, seq, dim)
    expected = array.transpose(0, 2, 1, 3).reshape(batch * seq, heads * dim)
    assert np.array_equal(apply(array, views), expected)


def test_a_tensor_without_elements_has_no_other_shape() -> None:
    assert whole(1, (2, 0, 3)).view((0, 6)) is None
