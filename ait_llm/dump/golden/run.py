"""The golden run: a checkpoint in transformers reads what a capture has read.

Each request is one sequence of tokens, its prompt and what was chosen after it, and one pass over
it computes all its steps: a causal model gives each token what it had when it was the newest. What
is written are passes like those of the capture, row by row, whatever it packed, padded, cached or
read in chunks.
"""

from __future__ import annotations

import inspect
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ait_llm.core import StepRange
from ait_llm.dump.golden.calls import ROOT, Calls
from ait_llm.dump.golden.checkpoint import (
    Checkpoint,
    check_likeness,
    free_memory,
    open_checkpoint,
    whole_model,
)
from ait_llm.dump.golden.groups import Group, groups_of
from ait_llm.dump.golden.likeness import Likeness, read_likeness
from ait_llm.dump.golden.streamed import StreamedModel
from ait_llm.dump.golden.turns import Turns
from ait_llm.dump.pytorch.engine_run import LINE_TOKENS
from ait_llm.dump.pytorch.ledger import Ledger
from ait_llm.dump.pytorch.model_tree import write_module_tree
from ait_llm.dump.pytorch.options import CaptureOptions
from ait_llm.dump.pytorch.recorder import Recorder
from ait_llm.dump.pytorch.selection import ModuleSelection
from ait_llm.dump.pytorch.session import device_text, remove_earlier
from ait_llm.dump.torch_ledger import TorchProcess, read_torch_ledger
from ait_llm.dump.torch_summary import torch_losses
from ait_llm.errors import UsageError

DTYPES = ("float32", "float64", "bfloat16", "float16", "like")
_OF_LABEL = {"bf16": "bfloat16", "float16": "float16", "float": "float32", "double": "float64"}
_PART_OF_MEMORY = 0.5
"""Share of the free memory that all weights may take; more, and they are read layer by layer."""
_SCORES = 1 << 30
"""Bytes of attention scores of a group that the plain implementation may make."""


@dataclass(frozen=True, slots=True)
class GoldenSettings:
    """What is to be run.

    Attributes:
        model: folder of the checkpoint.
        like: the capture whose tokens it reads.
        output: folder in which ``ait_dump`` is made.
        steps: passes that are computed; None for all.
        layers: closed intervals of layers whose modules are recorded; all modules if empty.
        dtype: one of ``DTYPES``.
        device: of torch.
        layer_by_layer: hold the weights of one layer at a time; None to do so where all of them
            would take more than half of the free memory.
        trusted: let code beside the checkpoint run.
    """

    model: Path
    like: Path
    output: Path
    steps: StepRange | None = None
    layers: tuple[tuple[int, int], ...] = ()
    dtype: str = "float32"
    device: str = "cpu"
    layer_by_layer: bool | None = None
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class GoldenPlan:
    """A golden run that can begin.

    Attributes:
        settings: what was asked for.
        checkpoint, like: what is run, and what it reads.
        dtype: element type of the weights and of all that is computed.
        groups: requests that run together.
        layer_by_layer: weights are read layer by layer.
        attention: implementation of attention.
        weights: bytes of all weights in memory; 0 where their files do not show it.
    """

    settings: GoldenSettings
    checkpoint: Checkpoint
    like: Likeness
    dtype: torch.dtype
    groups: tuple[Group, ...]
    layer_by_layer: bool
    attention: str
    weights: int

    @property
    def dump_dir(self) -> Path:
        """The folder that is written."""
        return self.settings.output / "ait_dump"


@dataclass(frozen=True, slots=True)
class GoldenSummary:
    """What a golden run left.

    Attributes:
        dump_dir: the folder written into.
        process: totals of what was written.
        problems: a sentence for each thing that is missing.
    """

    dump_dir: Path
    process: TorchProcess | None
    problems: tuple[str, ...]

    exit_code = 0

    @property
    def complete(self) -> bool:
        """True if all passes were computed and written."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """The summary for machines: JSON types only."""
        process = self.process
        return {
            "complete": self.complete,
            "dump_dir": str(self.dump_dir),
            "steps": sorted(process.steps) if process else [],
            "modules": process.modules if process else 0,
            "tensors": process.tensors if process else 0,
            "bytes": process.bytes if process else 0,
            "problems": list(self.problems),
        }


def plan_golden(settings: GoldenSettings) -> GoldenPlan:
    """Read the capture and the checkpoint's configuration, and decide how it will run.

    Raises:
        FormatError: no checkpoint, no capture, or one that shows no tokens.
        MissingDependencyError: transformers is not installed.
        UsageError: checkpoint and capture do not go together, or a setting cannot be used.
    """
    checkpoint = open_checkpoint(settings.model, trusted=settings.trusted)
    like = read_likeness(settings.like, settings.steps)
    check_likeness(checkpoint, like)
    dtype = _dtype(settings.dtype, like)
    _device(settings.device)
    groups = tuple(groups_of(like.rows.requests, like.rows.passes, checkpoint.sizes()))
    weights = _weights(settings.model, dtype)
    layer_by_layer = settings.layer_by_layer
    if layer_by_layer is None:
        is_large = weights > _PART_OF_MEMORY * free_memory(torch.device(settings.device))
        layer_by_layer = is_large and not checkpoint.bits
    return GoldenPlan(
        settings, checkpoint, like, dtype, groups, layer_by_layer, _attention(checkpoint, groups),
        weights,
    )  # fmt: skip


def run_golden(plan: GoldenPlan) -> GoldenSummary:
    """Run the checkpoint and write the dump.

    Raises:
        FormatError, UsageError: the weights cannot be loaded, or the output cannot be written.
    """
    settings = plan.settings
    device = torch.device(settings.device)
    streamed: StreamedModel | None = None
    if plan.layer_by_layer:
        streamed = StreamedModel(plan.checkpoint, plan.dtype, device, plan.attention)
        model = streamed.model
    else:
        model = whole_model(plan.checkpoint, plan.dtype, device, plan.attention)
    with _recorder(plan, model, device) as (recorder, ledger):
        calls = Calls(
            model,
            plan.groups,
            plan.like.rows.passes,
            recorder,
            ModuleSelection(layers=settings.layers),
        )
        _tell_schedule(plan, ledger)
        if calls.aliases:
            ledger.note(
                "modules at several places are recorded under the first that is selected",
                places=calls.aliases,
            )
        _only_newest(model, calls)
        turns = Turns((lambda places: None) if streamed is None else streamed.be_at)
        for part in () if streamed is None else streamed.parts:
            _meet_before(model.get_submodule(part), part, turns)
        bodies = [_body(model, plan, number, calls, device) for number in range(len(plan.groups))]
        turns.run(bodies)
        calls.finish()
    process = read_torch_ledger(ledger.path, recorder.options.run)
    losses = torch_losses([process]) if process is not None else ["nothing was written"]
    return GoldenSummary(plan.dump_dir, process, (*plan.like.problems, *losses))


def _body(
    model: nn.Module, plan: GoldenPlan, number: int, calls: Calls, device: torch.device
) -> Callable[[], None]:
    """The forward pass of a group."""
    group = plan.groups[number]
    requests = plan.like.rows.requests
    ids = torch.zeros((group.count, group.length), dtype=torch.int64)
    for row, (request, length) in enumerate(zip(group.requests, group.lengths, strict=True)):
        ids[row, :length] = torch.tensor(requests[request][:length])
    positions = torch.arange(group.length).expand(group.count, -1).clone()
    given: dict[str, Any] = {"input_ids": ids.to(device)}
    known = inspect.signature(model.forward).parameters
    if "position_ids" in known:
        given["position_ids"] = positions.to(device)
    if "use_cache" in known:
        given["use_cache"] = False

    def run() -> None:
        calls.of_group(number)
        with torch.no_grad():
            model(**given)

    return run


def _tell_schedule(plan: GoldenPlan, ledger: Ledger) -> None:
    """Say of the passes of an engine what they compute, as the engine did of its own."""
    told: set[str] = set()
    for each in plan.like.rows.passes:
        if each.schedule is None:
            continue
        rows: list[dict[str, Any]] = []
        row = 0
        for stretch in each.schedule.stretches:
            home = each.rows[row][0]  # type: ignore[index]  # nothing is padded
            tokens = plan.like.rows.requests[home]
            if stretch.request not in told:
                told.add(stretch.request)
                facts = {"request": stretch.request, "number": len(told) - 1, "prompt": len(tokens)}
                for start in range(0, len(tokens), LINE_TOKENS):
                    part = tokens[start : start + LINE_TOKENS]
                    ledger.told("request", {**facts, "first": start, "tokens": part})
            rows.append(
                {
                    "request": stretch.request,
                    "first": stretch.first,
                    "count": stretch.count,
                    "tokens": stretch.tokens,
                    **({"speculative": stretch.speculative} if stretch.speculative else {}),
                }
            )
            row += stretch.count
        ledger.told("schedule", {"root": ROOT, "step": each.step, "rows": rows})


def _only_newest(model: Any, calls: Calls) -> None:
    """Compute logits of the rows alone whose logits a pass wants: ``[1, rows, vocabulary]``."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is None:
        return

    def cut(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        group = calls.group
        hidden = args[0] if args else None
        if not isinstance(hidden, Tensor) or hidden.shape[:2] != (group.count, group.length):
            return None
        rows = torch.tensor(group.flat(group.logits), device=hidden.device)
        return (hidden.flatten(0, 1).index_select(0, rows)[None], *args[1:])

    head.register_forward_pre_hook(cut, prepend=True)


def _meet_before(module: nn.Module, part: str, turns: Turns) -> None:
    module.register_forward_pre_hook(lambda *_: turns.meet(part), prepend=True)


@contextmanager
def _recorder(
    plan: GoldenPlan, model: nn.Module, device: torch.device
) -> Iterator[tuple[Recorder, Ledger]]:
    """What writes the dump, sealed behind the run.

    Raises:
        UsageError: the output cannot be written.
    """
    settings = plan.settings
    steps = settings.steps or StepRange(((0, max(_steps(plan))),))
    selection = ModuleSelection(layers=settings.layers)
    options = CaptureOptions(settings.output, steps, selection, run=uuid.uuid4().hex[:8])
    name = f"{device_text(device)}_{os.getpid()}"
    folder = plan.dump_dir / "torch_tensors" / name
    path = plan.dump_dir / "ledger" / f"{name}.jsonl"
    golden = {
        "model": str(settings.model),
        "like": str(settings.like),
        "dtype": str(plan.dtype).removeprefix("torch."),
        "layer_by_layer": plan.layer_by_layer,
        "attention": plan.attention,
        "transformers": plan.checkpoint.library.__version__,
    }
    try:
        remove_earlier(folder)
        ledger = Ledger(path, device_text(device), {**options.as_json(), "golden": golden})
    except OSError as error:
        raise UsageError(
            f"{error.filename or path}: golden cannot be written here ({error.strerror}); choose "
            "another output folder"
        ) from error
    recorder = Recorder(folder, ledger, options)
    end = "raised"
    try:
        write_module_tree(folder / "model_tree.json", model, ROOT)
        parameters = model.named_parameters()
        recorder.know_weights({f"{ROOT}.{name}": each for name, each in parameters})
        yield recorder, ledger
        end = "exit"
    finally:
        recorder.close(end)


def _steps(plan: GoldenPlan) -> Sequence[int]:
    return [each.step for each in plan.like.rows.passes]


def _dtype(name: str, like: Likeness) -> torch.dtype:
    if name == "like":
        name = _OF_LABEL.get(like.dtype, "")
        if not name:
            raise UsageError(
                f"--dtype like: {like.path} does not show the type of its hidden states; name one"
            )
    found: torch.dtype = getattr(torch, name)
    return found


def _device(name: str) -> None:
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError, ValueError, NotImplementedError) as error:
        first = str(error).strip().splitlines()[0][:160]
        raise UsageError(f"--device {name} cannot be used here: {first}") from error


def _weights(folder: Path, dtype: torch.dtype) -> int:
    """Bytes of the weights in this type, by the size of their files."""
    stored = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    stored = stored or sum(path.stat().st_size for path in folder.glob("pytorch_model*.bin"))
    return stored * dtype.itemsize // 2  # published checkpoints have two bytes a weight


def _attention(checkpoint: Checkpoint, groups: Sequence[Group]) -> str:
    """The plain implementation, each step as its author wrote it, where its scores fit."""
    heads = int(getattr(checkpoint.text, "num_attention_heads", 0) or 1)
    largest = max(group.count * group.length**2 for group in groups)
    return "eager" if 4 * heads * largest <= _SCORES else "sdpa"
