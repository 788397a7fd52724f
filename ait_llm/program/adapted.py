"""Weights with an adapter of low rank (LoRA), as the weight that both are together.

A module with a base, ``lora_A`` and ``lora_B`` computes what one of the weight
``base + scaling * B @ A`` does. The base is a weight of its own, or of the layer that it holds. The
scaling is what the module itself says, never one that fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ait_llm.core import DType, TensorDesc
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.dumps.tensors import Described, Source
from ait_llm.errors import AitError, FormatError
from ait_llm.formats.elements import Array

# Of the base: peft, litgpt, and layers that are their own base, as those of loralib and torchtune.
_BASES = (".base_layer.weight", ".linear.weight", ".weight")
_HALF = re.compile(
    r"(?P<module>.+)\.lora_(?P<half>[ABab])(\.(?P<adapter>(?!weight$)[^.]+))?(\.weight)?"
)
# How layers say what they multiply the product by, where they have no ``scaling``.
_SCALES = (("lora_alpha", "r"), ("alpha", "rank"))
_Halves = Mapping[str, Mapping[str, str]]  # names of both, ``A`` and ``B``, by adapter


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
    halves = _halves(weights)
    found: dict[str, Tensor] = {}
    if not halves:
        return found
    for operation in operations:
        module = operation.name
        if module not in halves or f"{module}.weight" in found:
            continue
        base = next((module + each for each in _BASES if module + each in weights), "")
        source = _source(weights, base, halves[module], operation.definition)
        if source is not None:
            found[f"{module}.weight"] = replace(
                source.base, source=source, stem=f"{module}.weight", identity=None
            )
            bias = weights.get(f"{base.removesuffix('weight')}bias")
            if bias is not None:
                found[f"{module}.bias"] = bias
    return found


def is_whole(weight: Tensor) -> bool:
    """True for a weight that holds its adapter already, see :func:`adapted`."""
    return isinstance(weight.source, _Adapted)


def with_adapters(weights: Iterable[str], operations: Iterable[Operation]) -> frozenset[str]:
    """Modules that add what an adapter gives to what their weight gives.

    Args:
        weights: names of saved parameters.
        operations: of the pass; they name modules, and parameters that were not saved.
    """
    names = dict.fromkeys(weights)
    found, merged = set(), set()
    for operation in operations:
        names[operation.name] = None
        names.update(dict.fromkeys(parameters_of(operation)))
        if operation.definition:
            if "lora_alpha" in operation.definition:
                found.add(operation.name)
            if _is_off(operation.definition):
                merged.add(operation.name)
    halves = _halves(names)
    return frozenset((found | halves.keys()) - merged)


def parameters_of(operation: Operation) -> Iterator[str]:
    """Names of the parameters that an operator of torch was given."""
    for weight in operation.weights.values():
        yield str(weight.get("name")) if isinstance(weight, Mapping) else str(weight)


def reads_adapted(operation: Operation, modules: frozenset[str]) -> bool:
    """True for an operator that reads a base or a half of an adapter.

    Args:
        operation: the operator.
        modules: those with adapters.
    """
    if not modules:
        return False
    for name in parameters_of(operation):
        half = _HALF.fullmatch(name)
        bases = (name.removesuffix(base) for base in _BASES if name.endswith(base))
        if (half is not None and half["module"] in modules) or not modules.isdisjoint(bases):
            return True
    return False


def _halves(names: Iterable[str]) -> dict[str, _Halves]:
    """Names of both halves of each adapter, by module."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for name in names:
        match = _HALF.fullmatch(name) if ".lora_" in name else None
        if match is not None:
            adapters = found.setdefault(match["module"], {})
            adapters.setdefault(match["adapter"] or "", {})[match["half"].upper()] = name
    whole = {
        module: {adapter: each for adapter, each in adapters.items() if len(each) == 2}
        for module, adapters in found.items()
    }
    return {module: adapters for module, adapters in whole.items() if adapters}


def _is_off(definition: Mapping[str, object]) -> bool:
    """True if a module says that its adapter is merged, or does not count."""
    return any(definition.get(name) for name in ("merged", "merged_adapters", "disabled"))


def _scaling(definition: Mapping[str, object], adapter: str) -> float | None:
    scaling = definition.get("scaling")
    if isinstance(scaling, Mapping):
        scaling = scaling.get(adapter)
    if isinstance(scaling, int | float):
        return float(scaling)
    for alpha, rank in (map(definition.get, names) for names in _SCALES):
        if isinstance(alpha, int | float) and isinstance(rank, int) and rank > 0:
            return alpha / rank
    return None


def _source(
    weights: Mapping[str, Tensor], base: str, adapters: _Halves, definition: Mapping[str, object]
) -> _Adapted | None:
    """None if there is not just one adapter, or it is merged already, or of another kind."""
    if base not in weights or len(adapters) != 1 or _is_off(definition):
        return None
    [(adapter, halves)] = adapters.items()
    down, up = weights[halves["A"]], weights[halves["B"]]
    scaling = _scaling(definition, adapter)
    use_dora = definition.get("use_dora")
    if scaling is None or (any(use_dora.values()) if isinstance(use_dora, Mapping) else use_dora):
        return None
    whole = weights[base]
    try:
        shape = (up.shape[0], down.shape[1])
        is_turned = bool(definition.get("fan_in_fan_out")) or whole.shape != shape
        if whole.shape != (shape[::-1] if is_turned else shape) or up.shape[1] != down.shape[0]:
            return None
    except (AitError, IndexError):
        return None
    return _Adapted(whole, down, up, scaling, is_turned)
