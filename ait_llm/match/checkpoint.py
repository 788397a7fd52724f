"""Weights of a checkpoint for a capture that has none, or has them packed by its engine.

Modules and weights go by the same names but for what stands in front of them, such as ``model.``.
What an engine computes in one projection has its parts in the checkpoint, which are joined here in
the order in which engines join them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from types import MappingProxyType

import numpy as np

from ait_llm.core import TensorDesc
from ait_llm.dumps import Dump
from ait_llm.dumps.dequantised import dequantised
from ait_llm.dumps.model import Operation
from ait_llm.dumps.tensors import Described, Source, Tensor
from ait_llm.errors import AitError, FormatError, UsageError
from ait_llm.formats.elements import Array
from ait_llm.match.file_runs import run_of_weights
from ait_llm.match.model import SideName
from ait_llm.match.scenario import weight_files
from ait_llm.program.one_pass import Pass

_ROOT = "root."
_KINDS = ("weight", "bias")
# What vLLM and SGLang compute in one projection, and the weights that it is loaded from.
_JOINED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "qkv_proj": ("q_proj", "k_proj", "v_proj"),
        "gate_up_proj": ("gate_proj", "up_proj"),
        "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
    }
)
_TIED = {"lm_head": "embed_tokens"}
# Modules whose callers give them the table of another one.
_BY_TABLE = {"LogitsProcessor": "lm_head"}


@dataclass(frozen=True, slots=True)
class _Below(Source):
    """Reads some weights, one below the other."""

    parts: tuple[Tensor, ...]

    def header(self, tensor: Tensor) -> Described:
        """The type of the first part, and all rows."""
        first = self.parts[0]
        rows = sum(part.shape[0] for part in self.parts)
        return Described(TensorDesc(first.dtype, (rows, *first.shape[1:])))

    def values(self, tensor: Tensor, *, mmap: bool | None = None) -> Array:
        """All rows."""
        try:
            return np.concatenate([part.nd() for part in self.parts])
        except ValueError as error:
            raise FormatError(self.parts[0].path, f"cannot be joined: {error}") from None


def with_checkpoints(golden: Pass, mine: Pass, paths: Mapping[SideName, Path]) -> tuple[Pass, Pass]:
    """Two passes with the weights of the checkpoints of their sides, see :func:`with_checkpoint`.

    Raises:
        UsageError, FormatError: as there.
    """
    sides: list[tuple[SideName, Pass]] = [("golden", golden), ("mine", mine)]
    first, second = (
        with_checkpoint(run, paths[side], side) if side in paths else run for side, run in sides
    )
    return first, second


def with_checkpoint(run: Pass, path: Path, side: SideName) -> Pass:
    """A pass with weights of a checkpoint where it has none of the same shape.

    Args:
        run: a pass of modules.
        path: safetensors or pickled weights, a file, folder or index.
        side: whose pass it is, for messages.

    Raises:
        UsageError: no module goes by the name of a weight.
        FormatError: there are no weights at the path, or a file is damaged.
    """
    found = dict(run.weights)
    known = 0
    for module, kind, tensor in _of_modules(run, path):
        known += 1
        at = f"{module}.{kind}"
        if at not in found or found[at].shape != tensor.shape:
            found[at] = tensor
    if not known:
        whose = "the golden dump" if side == "golden" else "my dump"
        raise UsageError(
            f"{path} holds no weight that is called like a module of {whose}; give the "
            "checkpoint that it was run with, and capture modules (--type torch)"
        )
    return replace(run, weights=found)


def with_parameters(run: Pass, path: Path) -> Pass:
    """A pass whose modules have the weights of a checkpoint as their own, where they have none.

    Only such as are of the type of what the module makes: others were converted when they were
    loaded. A module that gets its table from its caller, as vLLM's ``LogitsProcessor`` does, has
    that of ``lm_head``.

    Args:
        run: a pass of modules.
        path: as :func:`with_checkpoint` takes it.

    Raises:
        FormatError: as there.
    """
    own: dict[str, dict[str, Tensor]] = {}
    for module, kind, tensor in _of_modules(run, path):
        own.setdefault(module, {})[f"{module}.{kind}"] = tensor
    for each in run.operations:
        if each.type in _BY_TABLE:
            table = _of_module(_BY_TABLE[each.type], "weight", _stored(path, _stamp(path)))
            at = f"{each.name}.weight"
            own[each.name] = {} if table is None else {at: _named_as(table, at)}
    operations = [_given(each, own.get(each.name, {})) for each in run.operations]
    return replace(run, operations=operations)


def _given(operation: Operation, weights: Mapping[str, Tensor]) -> Operation:
    if operation.is_graph or any(0 not in each.shape for each in operation.parameters.values()):
        return operation
    try:
        types = {tensor.dtype for tensor in operation.outputs}
        if not weights or any(each.dtype not in types for each in weights.values()):
            return operation
    except AitError:  # a damaged file tells nothing
        return operation
    return replace(operation, parameters=weights)


def _of_modules(run: Pass, path: Path) -> Iterator[tuple[str, str, Tensor]]:
    """Modules of a pass, ``weight`` or ``bias``, and what a checkpoint has of it."""
    stored = _stored(path, _stamp(path))
    modules = [each.name for each in run.operations if each.name.startswith(_ROOT)]
    front = _fronts(modules, stored)
    for module in modules:
        if not module.startswith(_ROOT + front[0]):
            continue
        name = front[1] + module[len(_ROOT + front[0]) :]
        for kind in _KINDS:
            tensor = _of_module(name, kind, stored)
            if tensor is not None:
                yield module, kind, _named_as(tensor, f"{module}.{kind}")


def _named_as(tensor: Tensor, name: str) -> Tensor:
    return replace(tensor, role="in", stem=name, identity=None)


def _of_module(name: str, kind: str, stored: Mapping[str, Tensor]) -> Tensor | None:
    """The weight or bias of a module, joined from its parts if the checkpoint has these."""
    own = stored.get(f"{name}.{kind}")
    if own is not None:
        return own
    front, dot, last = name.rpartition(".")
    if last in _TIED and kind == "weight":
        return next((stored[each] for each in stored if _is_tied(each, _TIED[last])), None)
    parts = [stored.get(f"{front}{dot}{part}.{kind}") for part in _JOINED.get(last, ())]
    if not parts or None in parts:
        return None
    every = tuple(part for part in parts if part is not None)
    return replace(every[0], source=_Below(every))


def _is_tied(name: str, table: str) -> bool:
    return name.endswith(f"{table}.weight")


def _fronts(modules: Sequence[str], stored: Mapping[str, Tensor]) -> tuple[str, str]:
    """What stands before the common part of names of modules and of weights."""
    plain = {module.removeprefix(_ROOT) for module in modules}
    names = {name.rpartition(".")[0] for name in stored}

    def common(fronts: tuple[str, str]) -> int:
        ours = {name[len(fronts[0]) :] for name in plain if name.startswith(fronts[0])}
        theirs = {name[len(fronts[1]) :] for name in names if name.startswith(fronts[1])}
        return len(ours & theirs)

    return max(product(_leading(plain), _leading(names)), key=common)


def _leading(names: set[str]) -> list[str]:
    """Nothing, and the first one or two components that names have."""
    found = {""}
    for name in names:
        first, dot, rest = name.partition(".")
        if dot:
            found.add(f"{first}.")
            second, dot, _ = rest.partition(".")
            if dot and not second.isdecimal():
                found.add(f"{first}.{second}.")
    return sorted(found, key=len)


def _stamp(path: Path) -> int:
    """Changes when the checkpoint does, so that it is read again."""
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror}") from None


def stored_weights(path: Path) -> Mapping[str, Tensor]:
    """The weights at a path by name, quantised ones as real numbers.

    Raises:
        FormatError: there are none, or a file is damaged.
    """
    return _stored(path, _stamp(path))


@lru_cache(maxsize=4)
def _stored(path: Path, stamp: int) -> Mapping[str, Tensor]:
    """The weights at a path by name, quantised ones as real numbers; ``stamp`` tells versions."""
    run = run_of_weights(weight_files(path))
    weights = dict(_named(run))
    return weights | {name: each.tensor for name, each in dequantised(weights).items()}


def _named(run: Pass) -> Iterator[tuple[str, Tensor]]:
    for operation in run.operations:
        yield operation.name, operation.tensors[0]


def own_checkpoint(dump: Dump | None) -> Path | None:
    """The checkpoint that a golden run of ours was made of, if it still lies there."""
    for process in () if dump is None else dump.processes:
        options = process.header.get("options")
        golden = options.get("golden") if isinstance(options, Mapping) else None
        model = golden.get("model") if isinstance(golden, Mapping) else None
        if isinstance(model, str) and (Path(model) / "config.json").is_file():
            return Path(model)
    return None


def read_sides(texts: Sequence[str]) -> dict[SideName, Path]:
    """``golden=PATH`` and ``mine=PATH`` as paths by side.

    Raises:
        UsageError: not written so, or a side twice.
    """
    found: dict[SideName, Path] = {}
    for text in texts:
        side, _, path = text.partition("=")
        if side not in ("golden", "mine") or not path:
            raise UsageError(f"--weights-from {text}: write golden=PATH or mine=PATH")
        name: SideName = "golden" if side == "golden" else "mine"
        if name in found:
            raise UsageError(f"--weights-from names {side} twice")
        found[name] = Path(path)
    return found
