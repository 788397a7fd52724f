"""How far two results of one function may be apart, whatever order they were added up in."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

# Two steps of the output's type for floats of 16 bits; for float32 what sums of a few thousand
# terms lose. Relative to the element plus the root mean square of its row.
TOLERANCES = {
    torch.float16: 2.0**-9,
    torch.bfloat16: 2.0**-6,
    torch.float32: 2.0**-15,
    torch.float64: 2.0**-15,
}


def difference(
    golden: Tensor,
    mine: Tensor,
    *,
    dtypes: Iterable[torch.dtype] = (),
    quantises: bool = False,
    undefined: Tensor | None = None,
) -> str:
    """In what ``mine`` differs from ``golden``; empty if it does not.

    The data type of ``mine`` is that of the output; the other may be wider. What goes in has
    ``dtypes``: values on the way may be stored in them. Whole numbers must be the same, or next to
    each other where the operator rounds to them (``quantises``).
    """
    if golden.numel() != mine.numel():
        return f"shape {list(golden.shape)}, ours {list(mine.shape)}"
    golden = golden.reshape(mine.shape)
    if undefined is not None:
        keep = ~undefined.expand(mine.shape)
        golden, mine = golden[keep], mine[keep]
    if not mine.numel():
        return ""
    if mine.dtype not in TOLERANCES:
        return _whole(golden, mine, int(quantises))
    tolerance = max(TOLERANCES.get(each, 0.0) for each in (mine.dtype, golden.dtype, *dtypes))
    expected, got = golden.to(mine.dtype).double(), mine.double()
    finite = expected.isfinite() & got.isfinite()
    odd = ~finite & ~((expected == got) | (expected.isnan() & got.isnan()))
    zeroed = [torch.where(finite, each, 0.0) for each in (expected, got)]
    off = (zeroed[0] - zeroed[1]).abs()
    last = mine.dim() - 1
    row = zeroed[0].square().mean(last, keepdim=True).sqrt() if mine.dim() else zeroed[0].abs()
    bound = tolerance * (zeroed[0].abs() + row)
    wrong = odd | (off > bound)
    if not bool(wrong.any()):
        return ""
    worst = int(torch.where(odd, torch.inf, off - bound).argmax())
    return (
        f"{int(wrong.sum())} of {mine.numel()} elements; "
        f"{float(expected.flatten()[worst]):.6g}, ours {float(got.flatten()[worst]):.6g}"
    )


def _whole(golden: Tensor, mine: Tensor, step: int) -> str:
    if golden.is_complex() or mine.is_complex():
        wrong = golden != mine
        return f"{int(wrong.sum())} of {mine.numel()} elements" if bool(wrong.any()) else ""
    expected, got = golden.double(), mine.double()
    wrong = (expected - got).abs() > step
    wrong |= expected.isnan()
    if not bool(wrong.any()):
        return ""
    worst = int((expected - got).abs().nan_to_num(torch.inf).argmax())
    return (
        f"{int(wrong.sum())} of {mine.numel()} whole numbers; "
        f"{float(expected.flatten()[worst]):g}, ours {float(got.flatten()[worst]):g}"
    )
