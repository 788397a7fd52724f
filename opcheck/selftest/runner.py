"""Runs every case with every fault and variation, and asks every standard."""

from __future__ import annotations

import importlib
import pkgutil
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

import ait_llm.opcheck.selftest as package
from ait_llm.judge.standards import Computation, Output, standards
from ait_llm.opcheck.golden import DEVICE, GOLDEN, Result, UnverifiableError, golden_ops
from ait_llm.opcheck.selftest.cases import NOT_GRADED, Case, Draw, cases
from ait_llm.opcheck.selftest.faults import Produce, Run, faults, variations

for _module in pkgutil.iter_modules(package.__path__):
    if _module.name.startswith("cases_"):
        importlib.import_module(f"{package.__name__}.{_module.name}")

Kind = Literal["fault", "variation"]


@dataclass(frozen=True, slots=True)
class Trial:
    """One fault or variation of one case, judged by one standard.

    Attributes:
        op, variant, dtype: the case.
        kind: what was injected.
        name: of the fault or variation.
        standard: who judged.
        alarmed: it failed an output; None where the standard has no limit for the data type.
        changed: the fault changed an output that is defined.
        family: of operators, after the module of its case.
    """

    op: str
    variant: str
    dtype: str
    kind: Kind
    name: str
    standard: str
    alarmed: bool | None
    changed: bool = True
    family: str = ""


def grade(
    *,
    ops: Collection[str] | None = None,
    names: Collection[str] | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Trial]:
    """Grade the standards.

    The same inputs are drawn each time.

    Args:
        ops: operators to grade with, all unless given.
        names: of the standards to grade, all unless given.
        seed: another one draws other inputs.
        progress: called with the number of cases done and their total.

    Returns:
        one trial for each case, data type, fault or variation, and standard. Faults that change
        nothing have one trial that says so, without a standard.
    """
    chosen = [one for one in cases if ops is None or one.op in ops]
    total = sum(len(one.dtypes) for one in chosen)
    judges = sorted(standards) if names is None else sorted(names)
    trials: list[Trial] = []
    done = 0
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the order of sums must not depend on the machine
    try:
        for one in chosen:
            for dtype in one.dtypes:
                trials.extend(_grade_case(one, dtype, judges, seed))
                done += 1
                if progress is not None:
                    progress(done, total)
    finally:
        torch.set_num_threads(threads)
    return trials


def uncovered() -> list[str]:
    """Operators that have no case, though nothing says that they cannot have one."""
    known = {golden_ops.get(name).name for name in golden_ops}
    return sorted(known - {one.op for one in cases} - set(NOT_GRADED))


def _grade_case(one: Case, dtype: torch.dtype, judges: Sequence[str], seed: int) -> Iterator[Trial]:
    golden = golden_ops.get(one.op)
    own_seed = zlib.crc32(f"{one.op} {one.variant} {dtype} {seed}".encode())
    built = one.build(Draw(dtype, own_seed))
    inputs = list(built.inputs)

    computation = Computation(
        golden, inputs, built.params, partial(built.compute, golden), verdict_only=True
    )
    run = Run(golden, built, dtype, computation.result(DEVICE))
    label = (one.op, one.variant, str(dtype).removeprefix("torch."))
    family = one.build.__module__.rpartition("cases_")[2]
    kinds: tuple[tuple[Kind, Sequence[tuple[str, Produce]]], ...] = (
        ("variation", [(name, variations.get(name)) for name in variations]),
        ("fault", [(name, faults.get(name)) for name in faults]),
    )
    for kind, produces in kinds:
        for name, produce in produces:
            result = produce(run)
            if result is None:
                continue
            if kind == "fault" and _equal(result, run.device):
                yield Trial(*label, kind, name, "", None, changed=False, family=family)
                continue
            for judge in judges:
                alarmed = _alarms(judge, computation, result)
                yield Trial(*label, kind, name, judge, alarmed, family=family)


def _pairs(golden: Result, mine: Result) -> Iterator[tuple[int, bool, Tensor, Tensor]]:
    for index, (right, got) in enumerate(zip(golden.outputs, mine.outputs, strict=True)):
        yield index, False, right, got
    formal = {id(tensor) for tensor in golden.outputs}
    for index, right in golden.updated_inputs.items():
        if id(right) not in formal:
            yield index, True, right, mine.updated_inputs[index]


def _defined(golden: Result, index: int, is_input: bool, like: Tensor) -> Tensor | None:
    undefined = None if is_input else golden.undefined.get(index)
    return None if undefined is None else ~undefined.expand(like.shape)


def _equal(mine: Result, device: Result) -> bool:
    """Whether all defined bits are those of a correct kernel."""
    for index, is_input, right, got in _pairs(device, mine):
        same = (right == got) | (right.isnan() & got.isnan())
        defined = _defined(device, index, is_input, right)
        if not bool((same if defined is None else same | ~defined).all()):
            return False
    return True


def _alarms(judge: str, computation: Computation, mine: Result) -> bool | None:
    standard, golden = standards.get(judge), computation.result(GOLDEN)
    verdicts: list[bool] = []
    for index, is_input, right, got in _pairs(golden, mine):
        output = Output(
            name=f"{'in' if is_input else 'out'}tensor{index}",
            index=index,
            is_input=is_input,
            golden=right,
            mine=got,
            defined=_defined(golden, index, is_input, right),
            computation=computation,
        )
        try:
            verdicts.append(standard(output).passed)
        except UnverifiableError:
            continue
    if not verdicts:
        return None
    if all(verdicts):
        return False
    accepts = computation.golden.accepts
    return accepts is None or not accepts(computation.inputs, mine.outputs, computation.params)
