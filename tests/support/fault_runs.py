"""Runs of the Llama demo with a fault, in memory: what each operator adds, and its kind of bug.

Nothing is written and no probe is loaded: what each operator reads and writes is copied as it
runs. That makes hundreds of faulty runs affordable. Every run has a process of its own, because
operations are numbered once per process.
"""

from __future__ import annotations

import importlib
import json
import os
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from fault_matrix import DECODE, LAYERS, PLACES, PREFILL, TARGETS, TOKENS
from memory_runs import array_tensor, memory_operation
from torch import Tensor

import ait_llm.hostatb as torch_atb
from ait_llm.compare.origin_kind import diagnosis_of
from ait_llm.dumps.model import Operation
from ait_llm.dumps.model import Tensor as DumpedTensor
from ait_llm.formats.torch_bridge import from_torch
from ait_llm.hostatb.leaf import OperatorLeaf
from ait_llm.hostatb.models.config import ATB_DTYPES, LLAMA_PRESETS
from ait_llm.hostatb.models.generate import generate, make_llama, random_prompts
from ait_llm.hostatb.models.weights import llama_weights
from ait_llm.hostatb.tensors import torch_view
from ait_llm.judge.evidence import Introduced, introduced_error

TOP = 3
PROMPTS = (7, 4)
DTYPES = ("float16", "bfloat16")
PHASES = {"prefill": PREFILL, "decode": DECODE}


@dataclass(frozen=True)
class Trial:
    """One run with one fault, or none.

    Attributes:
        fault, place, layer, phase, dtype: what was wrong, where; an empty fault for none.
        seed: of weights and prompts.
    """

    fault: str = ""
    place: str = ""
    layer: int = 0
    phase: str = "prefill"
    dtype: str = "float16"
    seed: int = 0

    @property
    def op_id(self) -> str:
        """The operator that is wrong."""
        return f"{PHASES[self.phase] + self.layer}_{PLACES[self.place]}"

    @property
    def request(self) -> str:
        """As hostatb takes it."""
        return f"{self.fault}:op={self.op_id}" if self.fault else ""


@dataclass(frozen=True)
class Outcome:
    """What was found in one run.

    Attributes:
        applied: the fault changed a bit of what its operator produced.
        blamed: operators with more error than their arithmetic permits, the worst first.
        kind, evidence, explained: the diagnosis of the first of them.
    """

    applied: bool
    blamed: tuple[str, ...]
    kind: str = ""
    evidence: str = ""
    explained: float = 0.0


def trials(dtypes: Sequence[str] = DTYPES) -> list[Trial]:
    """Every fault in every operator that it fits, in every layer, phase and data type."""
    return [
        Trial(fault, place, layer, phase, dtype)
        for dtype in dtypes
        for fault, places in TARGETS.items()
        for place in places
        for phase in PHASES
        for layer in range(LAYERS)
        # Prefill has no end of a cache to read beyond, decode no mask to forget.
        if (fault, phase) not in (("stale_padding", "prefill"), ("missing_mask", "decode"))
    ]


def outcome(trial: Trial) -> Outcome:
    """Run the demo and recompute every operator; to be called once in a process."""
    config = replace(LLAMA_PRESETS["tiny"], num_layers=LAYERS, dtype=ATB_DTYPES[trial.dtype])
    weights = llama_weights(config, trial.seed)
    prompts = random_prompts(config, PROMPTS, trial.seed)
    applied = torch_atb.inject(trial.request)
    calls: list[Operation] = []
    _record(calls)
    model = make_llama(config, weights, list(PROMPTS), TOKENS, 16)
    generate(model, prompts, TOKENS)
    measured = [(call, introduced_error(call, in_place=False)) for call in calls]
    suspects = [
        (result.is_wrong, result.excess, call)
        for call, result in measured
        if isinstance(result, Introduced) and result.is_suspect
    ]
    suspects.sort(key=lambda each: each[:2], reverse=True)
    changed = any(request.applied for request in applied.requests)
    if not suspects:
        return Outcome(changed, ())
    found = diagnosis_of(suspects[0][2])
    names = tuple(str(call.op_id) for *_, call in suspects)
    return Outcome(changed, names, found.kind.value, found.evidence, found.explained)


def _record(calls: list[Operation]) -> None:
    """Make every operator of this process leave a copy of its tensors."""
    run = OperatorLeaf.run

    def recorded(leaf: Any, kernel: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        chosen, golden = leaf._kernels[kernel]
        before = _copies(inputs)
        shapes = chosen.input_shapes or [None] * len(before)
        for index, shape in enumerate(shapes):
            tensor = before[index]
            if shape is not None and tensor is not None:
                before[index] = tensor.view(shape)
        run(leaf, kernel, inputs, outputs)
        calls.append(
            memory_operation(
                golden.name,
                leaf.site.op_id.parts,
                _tensors("in", before),
                _tensors("out", _copies(outputs)),
                params=chosen.golden_param,
                step=leaf.site.clock.step,
            )
        )

    OperatorLeaf.run = recorded  # type: ignore[method-assign]  # this process ends with the run


def _copies(tensors: Sequence[Any]) -> list[Tensor | None]:
    views = [torch_view(tensor) for tensor in tensors]
    return [None if view is None else view.clone() for view in views]


def _tensors(role: Literal["in", "out"], tensors: Sequence[Tensor | None]) -> list[DumpedTensor]:
    return [
        array_tensor(
            role, index, from_torch(tensor)[0], phase="before" if role == "in" else "after"
        )
        for index, tensor in enumerate(tensors)
        if tensor is not None
    ]


def outcomes(wanted: Sequence[Trial], at_once: int = 2) -> Iterator[tuple[Trial, Outcome]]:
    """The outcome of each trial, every one in a process of its own.

    Raises:
        RuntimeError: a process failed.
    """
    torch.set_num_threads(1)
    importlib.import_module("torch._dynamo")  # or every process would import it

    for start in range(0, len(wanted), at_once):
        group = wanted[start : start + at_once]
        started = [_start(trial) for trial in group]
        for trial, (pid, reading) in zip(group, started, strict=True):
            with os.fdopen(reading, "rb") as pipe:
                told = pipe.read()
            os.waitpid(pid, 0)
            if not told:
                raise RuntimeError(f"the run of {trial} failed")
            found = json.loads(told)
            yield trial, Outcome(**{**found, "blamed": tuple(found["blamed"])})


def _start(trial: Trial) -> tuple[int, int]:
    """A process that writes its outcome into a pipe; its id, and the pipe's end to read from."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps(asdict(outcome(trial))).encode())
    except Exception:  # noqa: BLE001  # told by the process that made this one
        traceback.print_exc()
    finally:
        os._exit(0)
