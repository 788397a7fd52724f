"""An evaluated graph of ggml in the words of PyTorch: ranks, names, what reads what.

ggml has four axes always, and writes into caches in place. Here a value has the axes that it means,
and what reads a cache behind a write to it reads the result of that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ait_llm.dump.ggml.library import Tensor
from ait_llm.dump.ggml.operators import Call, Value, norm_operator, operator_of
from ait_llm.dump.onnx.graph import Placed, fit_for_file
from ait_llm.dump.onnx.node import Operator

_LAYER = re.compile(r"^(.*?)-(\d+)((?: \(\w+\))*)$")
_WEIGHT = re.compile(r"(?:^|\.)(?:weight|bias|scale)$")
_WRITES = ("SET_ROWS", "CPY", "SET")
# How checkpoints call the module of a weight (``gguf-py/gguf/tensor_mapping.py``).
_BLOCK = re.compile(r"^blk\.(\d+)\.(\w+)\.\w+$")
_MODULES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LIKE_FIRST = ("RMS_NORM", "NORM", "SOFT_MAX", "ROPE", "SCALE", "L2_NORM", "CLAMP")
_NORMS = ("RMS_NORM", "NORM")


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A node and the value that it made.

    Attributes:
        placed: the node.
        value: its result.
        tensor: of the graph.
        reads: the values that it reads.
    """

    placed: Placed
    value: Value
    tensor: Tensor
    reads: tuple[Value, ...]


@dataclass(slots=True)
class _Norm:
    """A norm whose weight may follow."""

    call: Call
    tensor: Tensor
    value: Value
    reads: tuple[Value, ...]
    operator: Operator | None
    last: Tensor


class Layout:
    """Lays out one evaluation, tensor by tensor in the order in which they are computed.

    Args:
        whole: names of selections of rows that selected all of them in an earlier evaluation; of
            one row both are the same.
    """

    def __init__(self, whole: set[str]) -> None:
        self._whole = whole
        self._values: dict[int, Value] = {}
        self._tensors: dict[int, Tensor] = {}
        self._written: dict[int, Value] = {}
        self._taken: dict[str, int] = {}
        self._norm: _Norm | None = None
        self._newest: Value | None = None

    @property
    def newest(self) -> Value:
        """The value of the last tensor that was added."""
        assert self._newest is not None
        return self._newest

    def leaf(self, tensor: Tensor) -> Value | None:
        """The value of a weight or an input that is read for the first time; None if known."""
        if tensor.address in self._values or tensor.op != "NONE":
            return None
        is_weight = _WEIGHT.search(tensor.name) is not None
        rank = _dims(tensor.sizes)
        if "mask" in tensor.name:
            rank = max(rank, 2)
        value = Value(self._name(tensor.name), _shape(tensor, rank), is_weight, tensor.dtype)
        self._values[tensor.address] = value
        self._tensors[tensor.address] = tensor
        return value

    def add(self, tensor: Tensor, rows: Sequence[int] = ()) -> list[Evaluated]:
        """The nodes that are complete with this one.

        Args:
            tensor: that was computed.
            rows: what it selects, where it is a selection of rows.
        """
        inputs = tuple(self._read(address) for address in tensor.sources)
        rank = self._rank(tensor, inputs)
        packed = tensor.op == "RESHAPE" or self._is_packed(tensor)
        shape, kept = _shape(tensor, rank), tensor.name in self._whole
        steps = self._steps(tensor, rank) if tensor.op == "VIEW" else ()
        call = Call(tensor.op, inputs, shape, tensor.params, packed, steps, rows, kept)
        if len(rows) > 1 and inputs[0] is not None and inputs[0].shape[0] == len(rows):
            self._whole.add(tensor.name)
        self._tensors[tensor.address] = tensor
        if self._norm is not None and self._absorbs(tensor, call):
            return []
        done = self.finish()
        value = Value(self._name(tensor.name or tensor.op), call.shape, dtype=tensor.dtype)
        reads = tuple(each for each in inputs if each is not None)
        self._values[tensor.address] = self._newest = value
        if tensor.root and tensor.op in _WRITES:
            self._written[tensor.root] = value
        if tensor.op in _NORMS:
            self._norm = _Norm(call, tensor, value, reads, norm_operator(call), tensor)
            return done
        return [*done, self._placed(tensor, operator_of(call), value, reads)]

    def finish(self) -> list[Evaluated]:
        """The node that waits for what follows it."""
        norm, self._norm = self._norm, None
        if norm is None or norm.operator is None:
            return []
        return [self._placed(norm.last, norm.operator, norm.value, norm.reads)]

    def _absorbs(self, tensor: Tensor, call: Call) -> bool:
        """True if this multiplies a norm with its weight, or adds its bias: one node does both."""
        norm = self._norm
        assert norm is not None
        others = [each for each in call.inputs[1:] if each is not None]
        reads_it = call.inputs[0] is norm.value and len(others) == 1
        if not reads_it or not others[0].is_weight or others[0].shape != call.shape[-1:]:
            return False
        known = [each for each in norm.reads if each.is_weight]
        if tensor.op == "MUL" and not known:
            operator = norm_operator(norm.call, others[0])
        elif tensor.op == "ADD" and len(known) == 1:
            operator = norm_operator(norm.call, known[0], others[0])
        else:
            return False
        if operator is None:
            return False
        value = replace(norm.value, name=self._name(tensor.name))
        self._values[tensor.address] = self._newest = value
        reads = (*norm.reads, others[0])
        self._norm = _Norm(norm.call, norm.tensor, value, reads, operator, tensor)
        return True

    def _placed(
        self, tensor: Tensor, operator: Operator, value: Value, reads: tuple[Value, ...]
    ) -> Evaluated:
        weights = (_owner(each.name) for each in reads if each.is_weight)
        module = next(filter(None, weights), "") or _module(tensor.name)
        placed = Placed(value.name, operator, (value.name,), module)
        return Evaluated(placed, value, tensor, reads)

    def _read(self, address: int) -> Value | None:
        if not address:
            return None
        return self._written.get(address) or self._values.get(address)

    def _name(self, text: str) -> str:
        """A name that no other value of the graph has."""
        base = fit_for_file(text.replace(" (", "_").replace(")", ""))[:120]
        name, number = base, self._taken.get(base, 0)
        while name in self._taken:  # the base of another one may look so, too
            number += 1
            name = f"{base}_{number}"
        self._taken[base] = number
        self._taken.setdefault(name, 0)
        return name

    def _is_packed(self, tensor: Tensor) -> bool:
        """True if a view has the elements of its source in their order, from the first on."""
        source = self._tensors.get(tensor.sources[0])
        if source is None or source.offset != tensor.offset:
            return False
        return _is_dense(source) and _is_dense(tensor)

    def _steps(self, tensor: Tensor, rank: int) -> Sequence[int]:
        """Elements between two along each axis of a view, and before the first."""
        source = self._tensors.get(tensor.sources[0])
        size = source.strides[0] if source is not None else 0
        if source is None or not _is_dense(source) or source.dtype != tensor.dtype:
            return ()
        found = [*tensor.strides[:rank][::-1], tensor.offset - source.offset]
        return () if any(each % size for each in found) else [each // size for each in found]

    def _rank(self, tensor: Tensor, inputs: Sequence[Value | None]) -> int:
        least = _dims(tensor.sizes)
        there = [each for each in inputs if each is not None]
        if not there:
            return least
        first = there[0]
        if tensor.op == "GET_ROWS" and len(there) > 1:
            rank = min(first.rank, 2) - 1 + there[1].rank
        elif tensor.op in ("RESHAPE", "VIEW", "CONT"):
            rank = _reshaped(first.shape, tensor.sizes) or _row_axes(tensor)
        elif tensor.op == "SET_ROWS" and len(there) == 3:
            rank = there[2].rank
        elif tensor.op in _LIKE_FIRST:
            rank = first.rank
        else:
            rank = max(each.rank for each in there)
        return max(rank, least)


def _dims(sizes: Sequence[int]) -> int:
    """Axes up to the last that is longer than 1; one at least."""
    return max((place + 1 for place, size in enumerate(sizes) if size != 1), default=1)


def _row_axes(tensor: Tensor) -> int:
    """Two for rows that do not follow one another densely, else one.

    A view of some columns has such a step even where it has one row.
    """
    return 2 if tensor.strides[1] != tensor.strides[0] * tensor.sizes[0] else 1


def _shape(tensor: Tensor, rank: int) -> tuple[int, ...]:
    return tuple(tensor.sizes[:rank][::-1])


def _reshaped(source: Sequence[int], sizes: Sequence[int]) -> int | None:
    """Axes of a result that keeps the first axis of its source; None if it does not.

    Of one token this could not be told from the sizes, which are 1 there.
    """
    inner = math.prod(source[1:])
    if sizes[0] == 1 != inner:  # laid flat
        return None
    for count in range(1, len(sizes)):
        if math.prod(sizes[:count]) == inner and math.prod(sizes[count:]) == source[0]:
            return count + 1
    return None


def _is_dense(tensor: Tensor) -> bool:
    """True if its elements lie one behind the other."""
    step = tensor.strides[0]
    for size, stride in zip(tensor.sizes, tensor.strides, strict=True):
        if size != 1 and stride != step:
            return False
        step = step * size
    return True


def _owner(weight: str) -> str:
    """How a checkpoint calls the module of a weight; empty where this is not known."""
    block = _BLOCK.match(weight)
    if block is None:
        return _OUTSIDE.get(weight.rpartition(".")[0], "")
    inner = _MODULES.get(block[2], "")
    return inner and f"model.layers.{block[1]}.{inner}"


def _module(name: str) -> str:
    """The place in the model: ``blk.0.Qcur`` of ``Qcur-0 (view)``."""
    found = _LAYER.match(name)
    return f"blk.{found[2]}.{found[1]}" if found else ""
