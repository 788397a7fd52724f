"""Weights with an adapter of low rank (LoRA), as the weight that both are together.

A module that holds ``base_layer``, ``lora_A`` and ``lora_B`` computes what one of the weight
``base + scaling * B @ A`` does. The scaling is what the module itself says, never one that fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ait_llm.core import DType, TensorDesc
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.dumps.tensors import Described, Source
from ait_llm.errors import AitError, FormatError
from ait_llm.formats.elements import Array

_BASE = ".base_layer.weight"


@dataclass(frozen=True, slots=True)
class _Adapted(Source):
    """Computes the weight of one module.

    Attributes:
        base: ``[out, in]``, or ``[in, out]`` where it is kept so.
        down, up: ``[rank, in]`` and ``[out, rank]``.
        scaling: of their product.
        is_turned: the base is ``[in, out]``.
    """

    base: Tensor
    down: Tensor
    up: Tensor
    scaling: float
    is_turned: bool

    def header(self, tensor: Tensor) -> Described:
        """Float32, in the shape of the base."""
        return Described(TensorDesc(DType.FLOAT32, self.base.shape))

    def has_data(self, tensor: Tensor) -> bool:
        """True if all three have values."""
        return all(each.has_data for each in (self.base, self.down, self.up))

    def stored_as(self, tensor: Tensor) -> str:
        """That it has an adapter, and its scaling."""
        return f"a base and an adapter, scaled by {self.scaling:g}"

    def values(self, tensor: Tensor, *, mmap: bool | None = None) -> Array:
        """The sum, rounded once."""
        base, down, up = (each.nd().astype(np.float64) for each in (self.base, self.down, self.up))
        try:
            change = up @ down
            result: Array = base + self.scaling * (change.T if self.is_turned else change)
        except ValueError as error:
            raise FormatError(self.base.path, f"does not fit its adapter: {error}") from None
        return result.astype(np.float32)


def adapted(weights: Mapping[str, Tensor], operations: Iterable[Operation]) -> dict[str, Tensor]:
    """Weights and biases of modules with one adapter, by the names they would have without.

    Args:
        weights: parameters by dotted name.
        operations: of any pass; modules say how they scale.
    """
    bases = {name.removesuffix(_BASE): name for name in weights if name.endswith(_BASE)}
    found: dict[str, Tensor] = {}
    if not bases:
        return found
    for operation in operations:
        module = operation.name
        if module not in bases or f"{module}.weight" in found:
            continue
        source = _source(weights, module, operation.definition)
        if source is not None:
            base = source.base
            found[f"{module}.weight"] = replace(
                base, source=source, stem=f"{module}.weight", identity=None
            )
            bias = weights.get(f"{module}.base_layer.bias")
            if bias is not None:
                found[f"{module}.bias"] = bias
    return found


def is_adapted(module: str, members: Sequence[str]) -> bool:
    """True if a module is a projection with an adapter, whatever its class is called.

    Args:
        module: its path.
        members: paths of the modules directly within it.
    """
    base = f"{module}.base_layer"
    return base in members and all(
        any(each.startswith(f"{module}.lora_{half}") for each in members) for half in "AB"
    )


def _source(
    weights: Mapping[str, Tensor], module: str, definition: Mapping[str, object]
) -> _Adapted | None:
    """None if an adapter is missing, merged already, or of another kind."""
    pattern = re.compile(rf"{re.escape(module)}\.lora_A(\.[^.]+)?\.weight")
    adapters = [match[1] or "" for name in weights if (match := pattern.fullmatch(name))]
    up = weights.get(f"{module}.lora_B{adapters[0]}.weight") if len(adapters) == 1 else None
    scaling = definition.get("scaling")
    if isinstance(scaling, Mapping) and adapters:
        scaling = scaling.get(adapters[0].removeprefix("."))
    if up is None or not isinstance(scaling, int | float) or definition.get("merged_adapters"):
        return None
    use_dora = definition.get("use_dora")
    if any(use_dora.values()) if isinstance(use_dora, Mapping) else use_dora:
        return None
    base, down = weights[module + _BASE], weights[f"{module}.lora_A{adapters[0]}.weight"]
    try:
        shape = (up.shape[0], down.shape[1])
        is_turned = bool(definition.get("fan_in_fan_out")) or base.shape != shape
        if base.shape != (shape[::-1] if is_turned else shape):
            return None
    except (AitError, IndexError):
        return None
    return _Adapted(base, down, up, float(scaling), is_turned)
