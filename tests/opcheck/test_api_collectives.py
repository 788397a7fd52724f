"""Collectives of API dumps, each computed again from what all ranks bring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import api_dumps
import pytest
import torch
from torch import Tensor

from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.pipeline import opcheck

RANKS = 4
GROUP = {"type": "torch.ProcessGroup", "group_ranks": [0, 1, 2, 3]}
OPEN = "does not show that it does"


def brought(shape: Sequence[int] = (6, 4), dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(*shape, generator=generator).to(dtype) for _ in range(RANKS)]


def described(values: Tensor, name: str) -> dict[str, Any]:
    return api_dumps.tensor(values.double().numpy(), str(values.dtype), name=name)


class Run:
    """Calls of all ranks."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._records: list[dict[str, Any]] = [{} for _ in range(RANKS)]
        self._tensors: list[dict[str, Tensor]] = [{} for _ in range(RANKS)]

    def add(
        self,
        record: str,
        given: Callable[[int], Sequence[Any]],
        got: Callable[[int], Any],
        place: int = 0,
        **kwargs: Any,
    ) -> None:
        """A call: arguments of each rank, and which of them it received into."""
        for rank in range(RANKS):
            inputs = [
                self._kept(rank, f"{record}.input.{place}", value)
                for place, value in enumerate(given(rank))
            ]
            found = [*given(rank)[:place], got(rank)]
            outputs = [
                self._kept(rank, f"{record}.output.{at}", value) for at, value in enumerate(found)
            ]
            self._records[rank][record] = api_dumps.call(inputs, outputs, **kwargs)

    def report(self, ranks: int = RANKS) -> OpcheckReport:
        for rank in range(ranks):
            api_dumps.write_dump(
                self._root,
                self._records[rank],
                rank=rank,
                task="tensor",
                tensors=self._tensors[rank],
            )
        return opcheck(self._root)

    def _kept(self, rank: int, name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [self._kept(rank, f"{name}.{at}", each) for at, each in enumerate(value)]
        if not isinstance(value, Tensor):
            return value if value is None else api_dumps.scalar(value)
        self._tensors[rank][f"{name}.pt"] = value
        return described(value, f"{name}.pt")


def verdicts(report: OpcheckReport) -> Mapping[str, list[Verdict]]:
    found: dict[str, list[Verdict]] = {}
    for item in report.items:
        found.setdefault(item.op_id.partition("@")[0], []).append(item.verdict)
    return found


def wrong(values: Tensor) -> Tensor:
    found = values.clone()
    found[1] *= 1.5
    return found


def total(tensors: Sequence[Tensor]) -> Tensor:
    """As a ring adds up: rank after rank, rounded each time."""
    found = tensors[0]
    for each in tensors[1:]:
        found = found + each
    return found


REDUCED = {
    "RedOpType.SUM": total,
    "RedOpType.AVG": lambda given: total([each / RANKS for each in given]),
    "RedOpType.MAX": lambda given: torch.stack(list(given)).amax(0),
    "RedOpType.PRODUCT": lambda given: torch.stack(list(given)).float().prod(0).to(given[0].dtype),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("op", REDUCED)
def test_a_reduction_of_a_group_is_judged_on_each_rank(
    op: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    given = brought(dtype=dtype)
    right = REDUCED[op](given)
    run = Run(tmp_path)
    how = {"type": "torch.distributed.ReduceOp", "value": op}
    record = "Distributed.all_reduce.0.forward"
    run.add(
        record,
        lambda rank: [given[rank]],
        lambda rank: wrong(right) if rank == 2 else right,
        op=how,
        group=GROUP,
    )
    found = run.report()
    failed = [item.path for item in found.items if item.verdict is Verdict.FAIL]
    assert len(found.items) == RANKS
    assert len(failed) == 1
    assert "rank2" in failed[0]


MOVED: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "broadcast": (lambda given, rank: [given[rank], 1], lambda given, rank: given[1]),
    "all_gather": (lambda given, rank: [None, given[rank]], lambda given, rank: list(given)),
    "all_gather_into_tensor": (
        lambda given, rank: [None, given[rank]],
        lambda given, rank: torch.cat(given),
    ),
    "reduce_scatter_tensor": (
        lambda given, rank: [None, torch.cat([given[rank]] * RANKS)],
        lambda given, rank: total(given),
    ),
    "reduce_scatter": (
        lambda given, rank: [None, [given[rank] * (at + 1) for at in range(RANKS)]],
        lambda given, rank: total([each * (rank + 1) for each in given]),
    ),
    "scatter": (
        lambda given, rank: [None, list(given) if rank == 2 else None, 2],
        lambda given, rank: given[rank],
    ),
    "all_to_all": (
        lambda given, rank: [None, [given[rank] * (at + 1) for at in range(RANKS)]],
        lambda given, rank: [each * (rank + 1) for each in given],
    ),
    "all_to_all_single": (
        lambda given, rank: [None, torch.cat([given[rank] * (at + 1) for at in range(RANKS)])],
        lambda given, rank: torch.cat([each * (rank + 1) for each in given]),
    ),
}


@pytest.mark.parametrize("function", MOVED)
def test_what_is_moved_between_ranks_is_judged(function: str, tmp_path: Path) -> None:
    given, got = MOVED[function]
    values = brought()
    record = f"Distributed.{function}.0.forward"

    def result(rank: int) -> Any:
        found = got(values, rank)
        if rank != 3:
            return found
        return [wrong(found[0]), *found[1:]] if isinstance(found, list) else wrong(found)

    run = Run(tmp_path)
    run.add(record, lambda rank: given(values, rank), result, group=GROUP)
    found = run.report()
    failed = [item.path for item in found.items if item.verdict is Verdict.FAIL]
    assert {item.verdict for item in found.items} == {Verdict.PASS, Verdict.FAIL}
    assert len(failed) == 1
    assert "rank3" in failed[0]


@pytest.mark.parametrize(("function", "place"), [("reduce", 0), ("gather", 1)])
def test_what_one_rank_gets_is_judged_on_that_rank_alone(
    function: str, place: int, tmp_path: Path
) -> None:
    values = brought()
    right: Any = total(values) if function == "reduce" else list(values)
    for name, factor in (("right", 1), ("wrong", 1.5)):
        run = Run(tmp_path / name)

        def result(rank: int, factor: float = factor) -> Any:
            if rank != 1:
                return None if place else values[rank] * 7  # whatever is left there
            return [each * factor for each in right] if place else right * factor

        def given(rank: int) -> list[Any]:
            return [values[rank], 1] if function == "reduce" else [values[rank], None, 1]

        run.add(f"Distributed.{function}.0.forward", given, result, place, group=GROUP)
        found = run.report()
        wanted = Verdict.PASS if factor == 1 else Verdict.FAIL
        assert {item.verdict for item in found.items} == {wanted}
        assert all("rank1" in item.path for item in found.items)


def test_parts_of_unequal_sizes_are_exchanged(tmp_path: Path) -> None:
    values = brought((10, 4))
    sizes = [[1, 2, 3, 4], [4, 3, 2, 1], [2, 2, 3, 3], [5, 1, 1, 3]]
    parts = [value.split(size) for value, size in zip(values, sizes, strict=True)]
    run = Run(tmp_path)
    run.add(
        "Distributed.all_to_all_single.0.forward",
        lambda rank: [None, values[rank], [size[rank] for size in sizes], sizes[rank]],
        lambda rank: torch.cat([part[rank] for part in parts]),
        group=GROUP,
    )
    assert [item.verdict for item in run.report().items] == [Verdict.PASS] * RANKS


def test_calls_of_several_groups_meet_their_own(tmp_path: Path) -> None:
    """Ranks 0 and 1 call within their pair once more than ranks 2 and 3 do."""
    values = brought()
    pairs = [values[0] + values[1], values[2] + values[3]]
    run = Run(tmp_path)
    for number in range(2):
        run.add(
            f"Distributed.all_reduce.{number}.forward",
            lambda rank: [values[rank]],
            lambda rank: pairs[rank // 2],
        )
    for rank in range(RANKS):
        members = [0, 1] if rank < 2 else [2, 3]
        group = {"type": "torch.ProcessGroup", "group_ranks": members}
        for record in run._records[rank].values():
            record["input_kwargs"] = {"group": group}
        if rank > 1:
            del run._records[rank]["Distributed.all_reduce.1.forward"]
    found = verdicts(run.report())
    assert sum(map(len, found.values())) == 6
    assert {each for one in found.values() for each in one} == {Verdict.PASS}


def test_with_one_rank_they_are_counted(tmp_path: Path) -> None:
    values = brought()
    run = Run(tmp_path)
    record = "Distributed.all_reduce.0.forward"
    run.add(record, lambda rank: [values[rank]], lambda rank: values[0], group=GROUP)
    found = run.report(ranks=1)
    assert not found.items
    assert any(OPEN in reason for reason in found.unchecked)


def world(run: Run, values: Sequence[Tensor], sums: Sequence[Tensor]) -> None:
    """Sums over all ranks, however many these are."""
    for number, each in enumerate(sums):
        run.add(
            f"Distributed.all_reduce.{number}.forward",
            lambda rank: [values[rank]],
            lambda rank, each=each: each,
        )


def test_sums_that_are_right_show_that_all_ranks_are_there(tmp_path: Path) -> None:
    values = brought()
    right = total(values)
    run = Run(tmp_path)
    world(run, values, [right, right, right, wrong(right)])
    found = verdicts(run.report())
    assert set(found.pop("Distributed.all_reduce.3.forward")) == {Verdict.FAIL}
    assert {each for one in found.values() for each in one} == {Verdict.PASS}


def test_ranks_that_are_not_there_are_no_fault(tmp_path: Path) -> None:
    """The sums are those of eight ranks, of which the dump has four."""
    values = brought()
    run = Run(tmp_path)
    world(run, values, [total([*values, *values])] * 3)
    found = run.report()
    assert not found.items
    assert any(OPEN in reason for reason in found.unchecked)


def test_shapes_of_gathered_tensors_show_how_many_ranks_there_are(tmp_path: Path) -> None:
    values = brought()
    run = Run(tmp_path)
    run.add(
        "Distributed.all_gather_into_tensor.0.forward",
        lambda rank: [None, values[rank]],
        lambda rank: torch.cat(values),
    )
    world(run, values, [wrong(total(values))])
    found = verdicts(run.report())
    assert set(found["Distributed.all_gather_into_tensor.0.forward"]) == {Verdict.PASS}
    assert set(found["Distributed.all_reduce.0.forward"]) == {Verdict.FAIL}
