"""Signatures of sums: terms left out or added twice, and sums kept in 16 bits.

A plain matrix product is taken apart: what each block of its terms contributes is known, so a
least-squares fit of the residual tells which blocks are missing. A sum in 16 bits is simulated
with the blocks that kernels use, and where none fits to the last bit, the size of its rounding
errors is compared with the residual's. Sums inside other operators are recomputed with torch's sums
exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import ml_dtypes
import numpy as np

from ait_llm.core import DType
from ait_llm.diagnosis.call import Call
from ait_llm.diagnosis.kinds import Kind
from ait_llm.diagnosis.product import Product, product_of
from ait_llm.diagnosis.residual import Array, Hypothesis, Residual, spacing

_BLOCK = 16  # terms that a matrix unit adds at once
_MOST_BLOCKS = 256
_TAILS = (1, 2, 4, 8, 16, 32, 64, 128)
_ACCUMULATORS = ((DType.FLOAT16, np.float16), (DType.BFLOAT16, ml_dtypes.bfloat16))
_BLOCKS = (16, 1, 4, 8, 32, 64, 128, 256)
# Root mean square of the residual over what rounding after each block makes of it, where the order
# of terms is not known.
_LEAST, _MOST = 0.7, 1.4
_STRUCTURE = 0.15  # correlation with the right values from which on it is no rounding
_CERTAIN = 64  # elements that a statistical statement needs


def reductions(call: Call, residual: Residual, output: int) -> Iterator[Hypothesis]:
    """Left-out terms and 16-bit sums of a product, or of the sums in another operator."""
    product = product_of(call, residual) if output == 0 else None
    if product is None:
        yield from _sums_inside(call, residual, output)
        return
    yield from _tails(product, residual)
    yield from _blocks(product, residual)
    yield from _half_sums(product, residual)


def _spread(product: Product, residual: Residual, values: Array) -> Array:
    """A prediction for some rows and columns, as one of the output; NaN elsewhere."""
    whole = np.full(residual.mine.shape, np.nan)
    matrix = whole.reshape(-1, residual.mine.shape[-1])
    matrix[np.ix_(product.rows, product.columns)] = values
    return whole


def _tails(product: Product, residual: Residual) -> Iterator[Hypothesis]:
    """The sum ends too early, or starts too late; as many terms as explain the residual best."""
    terms = product.terms
    counts = [count for count in range(1, terms) if count <= 2 * _BLOCK or count % _BLOCK == 0]
    exact = product.residual.exact
    for word, order in (("last", slice(None, None, -1)), ("first", slice(None))):
        x, w = product.x[:, order], product.w[order]
        best: tuple[float, int, Array] | None = None
        part, done = np.zeros_like(exact), 0
        for count in counts:
            if count > terms // 2 + _BLOCK:
                break
            part = part + x[:, done:count] @ w[done:count]
            done = count
            left = float(((product.residual.mine - (exact - part)) ** 2).sum())
            if best is None or left < best[0]:
                best = (left, count, exact - part)
        if best is not None:
            text = f"the {word} {best[1]} of {terms} terms of each sum are left out"
            values = _spread(product, residual, best[2])
            yield Hypothesis(Kind.TRUNCATED, values, text, {"terms": float(best[1])}, 2.0)


def _blocks(product: Product, residual: Residual) -> Iterator[Hypothesis]:
    """Blocks of 16 terms that are missing or counted twice, by a least-squares fit."""
    count = product.terms // _BLOCK
    exact, mine = product.residual.exact, product.residual.mine
    if not 2 <= count <= min(_MOST_BLOCKS, exact.size // 4):
        return
    parts = [
        product.x[:, at * _BLOCK : (at + 1) * _BLOCK] @ product.w[at * _BLOCK : (at + 1) * _BLOCK]
        for at in range(count)
    ]
    shares = np.stack([part.ravel() for part in parts], axis=1)
    fitted = np.rint(np.linalg.lstsq(shares, (mine - exact).ravel(), rcond=None)[0])
    odd = np.flatnonzero(fitted)
    if not 1 <= len(odd) <= count // 2 or np.abs(fitted).max() > 1:
        return
    values = exact + (shares @ fitted).reshape(exact.shape)
    first = int(odd[0]) * _BLOCK
    what = "left out" if fitted[odd[0]] < 0 else "added twice"
    text = f"terms {first} to {first + _BLOCK - 1} of each sum are {what}"
    if len(odd) > 1:
        text += f", and {len(odd) - 1} more block{'s' if len(odd) > 2 else ''} of {_BLOCK}"
    spread = _spread(product, residual, values)
    yield Hypothesis(Kind.TRUNCATED, spread, text, {"first": float(first)}, 1.0 + len(odd))


def _half_sums(product: Product, residual: Residual) -> Iterator[Hypothesis]:
    simulated = False
    for dtype, storage in _ACCUMULATORS:
        for block in _BLOCKS:
            if block >= product.terms or product.terms // block > 4 * _MOST_BLOCKS:
                continue
            total, variance = _accumulated(product, dtype, storage, block)
            if not np.isfinite(total).all():
                continue
            values = total + product.rest
            text = f"sums are kept in {dtype.label}, rounded after each {block} terms"
            if block == 1:
                text = f"sums are kept in {dtype.label}, rounded after each term"
            parameters: dict[str, float | str] = {"block": float(block), "type": dtype.label}
            spread = _spread(product, residual, values)
            if product.residual.bits(values) < 0.3 * product.residual.bits_of_nothing:
                simulated = True
                yield Hypothesis(Kind.HALF_ACCUMULATION, spread, text, parameters, 2.0)
            elif not simulated and _looks_like(product.residual, variance):
                text += ", judged by the size of its rounding errors"
                parameters["judged"] = "size"
                # It predicts how large errors are, not which: what it explains is the mine itself.
                yield Hypothesis(
                    Kind.HALF_ACCUMULATION,
                    _spread(product, residual, product.residual.mine),
                    text,
                    parameters,
                    0.3 * product.residual.bits_of_nothing / np.log2(residual.size),
                )
                return


def _accumulated(product: Product, dtype: DType, storage: type, block: int) -> tuple[Array, Array]:
    """Sums in 16 bits, and the variance that rounding them adds up to."""
    total = np.zeros_like(product.residual.exact)
    variance = np.zeros_like(total)
    for start in range(0, product.terms, block):
        part = product.x[:, start : start + block] @ product.w[start : start + block]
        with np.errstate(over="ignore", invalid="ignore"):
            total = (total + part).astype(storage).astype(np.float64)
        variance += spacing(total, dtype) ** 2 / 12
    return total, variance


def _looks_like(residual: Residual, variance: Array) -> bool:
    """Errors as large as those roundings make them, everywhere, and without a structure."""
    error = residual.mine - residual.exact
    if residual.size < _CERTAIN:
        return False
    own = residual.noise**2
    if float(variance.mean()) < 4 * float(own.mean()):
        return False  # hardly larger than what a right kernel does
    scaled = error / np.sqrt(variance + own)
    size = float(np.sqrt((scaled**2).mean()))
    if not _LEAST <= size <= _MOST or float(np.abs(scaled).max()) > 6 * size:
        return False
    halves = [float(np.sqrt((part**2).mean())) for part in np.array_split(scaled.ravel(), 4)]
    if max(halves) > 2 * min(halves):
        return False
    with np.errstate(invalid="ignore", divide="ignore"):
        same = float(np.corrcoef(error.ravel(), residual.exact.ravel())[0, 1])
    return not abs(same) >= _STRUCTURE + 2 / residual.size**0.5


def _sums_inside(call: Call, residual: Residual, output: int) -> Iterator[Hypothesis]:
    """Sums of operators that are no plain product, with other kernels in place of torch's."""
    import torch

    from ait_llm.opcheck.golden import DEVICE
    from ait_llm.opcheck.selftest.kernels import Kernels

    def keeping(tail: int) -> Kernels:
        def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            keep = a.shape[-1] - min(tail, -(-a.shape[-1] // 4))
            return torch.matmul(a[..., :keep], b[..., :keep, :])

        return Kernels(product)

    def halving(dtype: torch.dtype, block: int) -> Kernels:
        def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=a.dtype)
            for start in range(0, a.shape[-1], block):
                end = start + block
                part = torch.matmul(a[..., start:end], b[..., start:end, :])
                total = (total + part).to(dtype).to(a.dtype)
            return total

        return Kernels(product)

    unrounded = replace(DEVICE, round_output=False)
    # Only float32 sums are exchanged; without any there is nothing to try.
    for tail in _TAILS:
        values = keeping(tail).run(lambda: call.predicted(output, unrounded))
        if values is None or residual.bits(values) == residual.bits_of_nothing:
            break
        text = f"the last {tail} terms of its sums are left out (a quarter of short ones)"
        yield Hypothesis(Kind.TRUNCATED, values, text, {"terms": float(tail)}, 2.0)
    for dtype in (torch.float16, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        for block in (_BLOCK, 1, 8, 32, 64):
            values = halving(dtype, block).run(lambda: call.predicted(output, unrounded))
            if values is None or not np.isfinite(values).all():
                break
            text = f"its sums are kept in {name}, rounded after each {block} terms"
            parameters: dict[str, float | str] = {"block": float(block), "type": name}
            yield Hypothesis(Kind.HALF_ACCUMULATION, values, text, parameters, 2.0)
