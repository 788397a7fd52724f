"""Quantised weights among those of a checkpoint or capture, as tensors of real numbers.

A weight is recognised by the names, types and shapes of what is stored for it, see the table in
``docs/matching.md``. Its values are computed when they are read; listing it costs headers only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ait_llm.core import DType, TensorDesc
from ait_llm.dumps.stored_numbers import (
    Stored,
    are_of_blocks,
    awq,
    compressed,
    gptq,
    mxfp4,
    mxfp8,
    real_scales,
    with_codes,
)
from ait_llm.dumps.tensors import Described, Source, Tensor
from ait_llm.errors import AitError, FormatError
from ait_llm.formats import packed
from ait_llm.formats.elements import Array
from ait_llm.formats.packed import Floats

_FP8 = {DType.FLOAT8_E4M3FN: 1 / 8, DType.FLOAT8_E5M2: 1 / 4}  # step, relative to the value
_BYTES = (DType.UINT8, DType.INT8)
_FP8_BLOCK = 128  # the last block of a row or column may be shorter
_STATE, _CODES = "quant_state.bitsandbytes__", ("nf4", "fp4")
_SUFFIXES = ("_scale", "_scale_inv", "._scale")
_DATA = ("._data", "_qdata", "_data")  # of quanto in checkpoints, of torchao and quanto in captures


@dataclass(frozen=True, slots=True)
class Dequantised:
    """A weight that is stored in parts.

    Attributes:
        tensor: the real numbers, float32; named like one of the parts if that is the weight.
        parts: names of what is stored, the weight itself first.
    """

    tensor: Tensor
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a weight is stored.

    Attributes:
        name: of the weight that it stands for.
        parts: what is stored: tensor by what it is, ``data`` first.
        names: names of these tensors.
        shape: of the weight.
        words: for people.
        real: its real numbers, and the step of rounding at each element.
    """

    name: str
    parts: Mapping[str, Tensor]
    names: tuple[str, ...]
    shape: tuple[int, ...]
    words: str
    real: Callable[[Stored], tuple[Floats, Array]]


class _Reader(Source):
    """Computes the real numbers of one weight."""

    __slots__ = ("_layout",)

    def __init__(self, layout: _Layout) -> None:
        self._layout = layout

    def header(self, tensor: Tensor) -> Described:
        """Float32, in the shape of the weight."""
        return Described(TensorDesc(DType.FLOAT32, self._layout.shape))

    def has_data(self, tensor: Tensor) -> bool:
        """True if all parts have values."""
        return all(part.has_data for part in self._layout.parts.values())

    def values(self, tensor: Tensor, *, mmap: bool | None = None) -> Array:
        """The real numbers."""
        return self._read()[0]

    def stored_as(self, tensor: Tensor) -> str:
        """The format and where it has its scales."""
        return self._layout.words

    def rounding(self, tensor: Tensor) -> float:
        """How far off a weight is that was rounded to the nearest of the values it can have."""
        real, step = self._read()
        return packed.expected_error(step, real)

    def _read(self) -> tuple[Floats, Array]:
        layout = self._layout
        stored = {what: part.nd() for what, part in layout.parts.items()}
        try:
            real, step = layout.real(stored)
            return real.reshape(layout.shape), np.broadcast_to(step, real.shape)
        except (ValueError, IndexError) as error:
            path = layout.parts["data"].path
            raise FormatError(path, f"{layout.name} is no {layout.words}: {error}") from None


def dequantised(weights: Mapping[str, Tensor]) -> dict[str, Dequantised]:
    """The quantised weights among some tensors, by the names of the weights they stand for."""
    found: dict[str, Dequantised] = {}
    for name in weights:
        for layout_of in (_group_packed, _with_codes, _int_packed, _blocks, _scaled):
            try:
                layout = layout_of(name, weights)
            except AitError:
                continue  # whoever reads the damaged file says so
            if layout is not None and layout.name not in found:
                tensor = replace(
                    layout.parts["data"], source=_Reader(layout), stem=layout.name, identity=None
                )
                if tensor.own_name is not None:
                    tensor = replace(tensor, own_name=layout.name)
                found[layout.name] = Dequantised(tensor, layout.names)
                break
    return found


def _parts(
    weights: Mapping[str, Tensor], **names: str
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Those of some tensors that exist, by what they are, and their names."""
    kept = {what: name for what, name in names.items() if name in weights}
    return {what: weights[name] for what, name in kept.items()}, tuple(kept.values())


def _group_packed(name: str, weights: Mapping[str, Tensor]) -> _Layout | None:
    """``X.qweight`` of GPTQ and AutoAWQ, with ``X.qzeros`` and ``X.scales``."""
    stem, dot, last = name.rpartition(".")
    if last != "qweight":
        return None
    at = stem + dot
    parts, names = _parts(
        weights, data=name, scale=f"{at}scales", zero=f"{at}qzeros", index=f"{at}g_idx"
    )
    if "scale" not in parts or "zero" not in parts or parts["data"].dtype is not DType.INT32:
        return None
    data, scale, zero = (parts[what].shape for what in ("data", "scale", "zero"))
    if len(data) != 2 or len(scale) != 2 or len(zero) != 2 or not zero[1]:
        return None
    out = scale[1]
    bits = 32 * zero[1] // out
    if bits not in (2, 4, 8) or zero != (scale[0], out * bits // 32):
        return None
    if data[1] == out:
        words = f"int{bits} of GPTQ in groups"
        shape = (out, data[0] * 32 // bits)
        return _Layout(f"{at}weight", parts, names, shape, words, lambda s: gptq(s, bits))
    if bits == 4 and data[1] * 8 == out:
        words = "int4 of AutoAWQ in groups"
        parts.pop("index", None)
        return _Layout(f"{at}weight", parts, names, (out, data[0]), words, awq)
    return None


def _with_codes(name: str, weights: Mapping[str, Tensor]) -> _Layout | None:
    """``X`` with ``X.absmax`` and ``X.quant_map`` of bitsandbytes, and what it says of them."""
    state = next(
        (f"{name}.{_STATE}{kind}" for kind in _CODES if f"{name}.{_STATE}{kind}" in weights), ""
    )
    parts, names = _parts(
        weights,
        data=name,
        scale=f"{name}.absmax",
        code=f"{name}.quant_map",
        state=state,
        nested_absmax=f"{name}.nested_absmax",
        nested_quant_map=f"{name}.nested_quant_map",
    )
    if not {"scale", "code", "state"} <= set(parts) or ("nested_absmax" in parts) is not (
        "nested_quant_map" in parts
    ):
        return None
    try:
        stated = json.loads(parts["state"].nd().tobytes())
        shape = tuple(int(length) for length in stated["shape"])
    except (ValueError, KeyError, TypeError):
        return None
    count, scales = math.prod(shape), math.prod(parts["scale"].shape)
    if (
        parts["data"].dtype is not DType.UINT8
        or parts["code"].shape != (16,)
        or not scales
        or count % scales
        or math.prod(parts["data"].shape) != -(-count // 2)
    ):
        return None
    words = f"{state.rpartition('__')[2]} of bitsandbytes"
    return _Layout(name, parts, names, shape, words, lambda stored: with_codes(stored, shape))


def _int_packed(name: str, weights: Mapping[str, Tensor]) -> _Layout | None:
    """``X_packed`` of compressed-tensors: signed integers in 32-bit ones, or MXFP4 in bytes."""
    if not name.endswith("_packed"):
        return None
    at = name.removesuffix("_packed")
    parts, names = _parts(
        weights,
        data=name,
        scale=f"{at}_scale",
        zero=f"{at}_zero_point",
        index=f"{at}_g_idx",
        shape=f"{at}_shape",
    )
    if "scale" not in parts:
        return None
    data, scale = parts["data"], parts["scale"]
    if data.dtype is DType.UINT8 and scale.dtype in (DType.UINT8, DType.FLOAT8_E8M0):
        return _mxfp4(at, parts, names)
    if data.dtype is not DType.INT32 or "shape" not in parts or len(data.shape) < 2:
        return None
    stated = parts.pop("shape").nd().reshape(-1)
    shape = tuple(int(length) for length in stated)
    bits = next((b for b in (4, 8, 2) if -(-shape[-1] // (32 // b)) == data.shape[-1]), 0)
    if not bits or shape[:-1] != data.shape[:-1]:
        return None
    words = f"int{bits} of compressed-tensors"
    return _Layout(at, parts, names, shape, words, lambda s: compressed(s, bits, shape))


def _blocks(name: str, weights: Mapping[str, Tensor]) -> _Layout | None:
    """``X_blocks`` and ``X_scales`` of MXFP4, of which transformers makes a transposed ``X``."""
    ending = next((end for end in ("_blocks", ".blocks") if name.endswith(end)), None)
    if ending is None:
        return None
    at = name.removesuffix(ending)
    parts, names = _parts(weights, data=name, scale=f"{at}{ending[0]}scales")
    if "scale" not in parts or parts["data"].dtype is not DType.UINT8:
        return None
    shape = parts["data"].shape
    if len(shape) < 3 or shape[-1] * 2 != packed.MX_BLOCK or parts["scale"].shape != shape[:-1]:
        return None
    rows = (*shape[:-2], shape[-2] * packed.MX_BLOCK)
    is_turned = ending == "_blocks" and len(rows) == 3

    def real(stored: Stored) -> tuple[Floats, Array]:
        flat = stored["data"].reshape(*shape[:-2], -1)
        found = mxfp4({"data": flat, "scale": stored["scale"]})
        return (found[0].swapaxes(-1, -2), found[1].swapaxes(-1, -2)) if is_turned else found

    turned = (*rows[:-2], rows[-1], rows[-2]) if is_turned else rows
    return _Layout(at, parts, names, turned, "MXFP4 in blocks of 32", real)


def _mxfp4(at: str, parts: dict[str, Tensor], names: tuple[str, ...]) -> _Layout | None:
    """Two elements in a byte, and a scale for each 32 of a row."""
    shape = parts["data"].shape
    rows = (*shape[:-1], shape[-1] * 2) if shape else ()
    if not rows or not are_of_blocks(parts["scale"].shape, rows):
        return None
    return _Layout(at, parts, names, rows, "MXFP4 in blocks of 32", mxfp4)


def _scaled(name: str, weights: Mapping[str, Tensor]) -> _Layout | None:
    """``X`` of int8 or fp8 with ``X_scale``, or ``X_scale_inv`` which is multiplied, too."""
    if weights[name].dtype not in (*_FP8, *_BYTES):
        return None
    at = next((name.removesuffix(end) for end in _DATA if name.endswith(end)), name)
    scale = next((at + end for end in _SUFFIXES if at + end in weights), "")
    if not scale or scale == name:
        return None
    parts, names = _parts(
        weights, data=name, scale=scale, zero=f"{at}_zero_point", offset=f"{at}_offset"
    )
    dtype, shape = weights[name].dtype, weights[name].shape
    if weights[scale].dtype in (DType.UINT8, DType.FLOAT8_E8M0) and dtype in _BYTES:
        return _mxfp4(at, parts, names)
    if dtype is DType.UINT8 or len(shape) not in (2, 3):
        return None
    if weights[scale].dtype is DType.FLOAT8_E8M0 and are_of_blocks(weights[scale].shape, shape):
        words = f"MX{dtype.label} in blocks of 32"
        return _Layout(at, parts, names, shape, words, lambda s: mxfp8(s, _FP8[dtype]))
    relative = _FP8.get(dtype)
    words = "int8 with its scale" if relative is None else f"{dtype.label} with its scale"

    def real(stored: Stored) -> tuple[Floats, Array]:
        block = 0 if relative is None else _FP8_BLOCK
        factor = packed.spread(real_scales(stored["scale"]), shape, block=block)
        data = stored["data"].astype(np.float32)
        for what in ("zero", "offset"):
            if what in stored:
                data -= packed.spread(stored[what].astype(np.float32), shape, block=block)
        data *= factor
        return data, factor if relative is None else np.abs(data) * np.float32(relative)

    return _Layout(at, parts, names, shape, words, real)
