"""What operators write into their arguments is what later versions of the storages hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from memory_runs import array_tensor, memory_operation, run

from ait_llm.dumps.model import Operation, Role, Tensor
from ait_llm.dumps.tensors import Identity
from ait_llm.program.flow import Flow, flow
from ait_llm.program.overwritten import Overwritten

ROWS, WIDTH = 3, 16


def _columns(role: Role, index: int, version: int, start: int, width: int) -> Tensor:
    """Columns of a storage of ``ROWS`` times ``WIDTH`` elements, in a version of it."""
    array = np.full((ROWS, width), version + start, np.float32)
    tensor = array_tensor(role, index, array, f"{role}put_{index}")
    return replace(tensor, identity=Identity(1, version, start, (WIDTH, 1)))


def _flow() -> tuple[Flow, Overwritten]:
    """Two columns are turned in place; the third ones only lie beside them."""
    operations: list[Operation] = [
        memory_operation(
            "aten.split.Tensor",
            (0,),
            [_columns("in", 0, 1, 0, WIDTH)],
            [_columns("out", n, 1, 4 * n, 4) for n in range(3)],
        ),
        memory_operation(
            "_C.rotary_embedding.default",
            (1,),
            [_columns("in", 0, 1, 0, 4), _columns("in", 1, 1, 4, 4)],
        ),
        memory_operation(
            "vllm.attention.default",
            (2,),
            [_columns("in", n, 2, 4 * n, 4) for n in range(3)],
            [array_tensor("out", 0, np.ones((ROWS, 4), np.float32), "output")],
        ),
    ]
    found = flow(run("torch", operations))
    return found, Overwritten(found)


def test_what_an_operator_changes_is_its_result() -> None:
    found, overwritten = _flow()
    results = [(tensor.index, value) for tensor, value in overwritten.results(1)]
    assert results == [(0, found.at(2, "in", 0)), (1, found.at(2, "in", 1))]


def test_what_lies_beside_stays_what_it_was() -> None:
    found, overwritten = _flow()
    assert overwritten.kept(1) == [(found.at(0, "out", 2), found.at(2, "in", 2))]


def test_an_operator_that_only_reads_changes_nothing() -> None:
    _, overwritten = _flow()
    assert overwritten.results(2) == []
