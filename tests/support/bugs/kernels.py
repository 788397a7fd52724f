"""Operators that compute what their arguments do not say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from random import Random
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bugs.model import Injected, Nature, Site, Surgery, kind
from bugs.places import Numbering, Place, Places


@dataclass(frozen=True)
class Execution:
    """One execution of the operator that goes wrong.

    Attributes:
        func, args, kwargs: the call.
        result: what is right.
        earlier: what operators of that name made before, by shape.
        strength: relative size of the error.
        rng: for what is left to chance.
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    earlier: dict[tuple[int, ...], torch.Tensor]
    strength: float
    rng: Random

    @property
    def out(self) -> torch.Tensor:
        """The first result."""
        found: torch.Tensor = self.result[0] if isinstance(self.result, tuple) else self.result
        return found

    def again(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The operator on other arguments; the first result in the type of the right one."""
        found = self.func(*args, **(self.kwargs | kwargs))
        found = found[0] if isinstance(found, tuple) else found
        return found.to(self.out.dtype).reshape(self.out.shape)


Change = Callable[[Execution], torch.Tensor]


class _Fault(TorchDispatchMode):
    """Lets one execution of an operator go wrong."""

    def __init__(
        self, places: Places, place: Place, change: Change, strength: float, seed: int
    ) -> None:
        super().__init__()
        self._numbering = Numbering(places)
        self._place, self._change, self._strength, self._seed = place, change, strength, seed
        self._earlier: dict[tuple[int, ...], torch.Tensor] = {}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """The result of the operator, the wrong one where it is the one."""
        result = func(*args, **(kwargs or {}))
        if str(func) != self._place.what:
            return result
        if self._numbering.next(str(func)) == self._place:
            execution = Execution(
                func, args, kwargs or {}, result, self._earlier, self._strength, Random(self._seed)
            )
            wrong = self._change(execution)
            return (wrong, *result[1:]) if isinstance(result, tuple) else wrong
        first = result[0] if isinstance(result, tuple) else result
        if isinstance(first, torch.Tensor):
            self._earlier[tuple(first.shape)] = first.clone()
        return result


def _fault(
    name: str,
    operators: str,
    *,
    graded: bool = False,
    large: float = 0.05,
    fits: Callable[[Site], bool] = lambda site: True,
) -> Callable[[Change], Change]:
    """Register a kind of fault of the operators that a pattern of ``operators`` selects."""
    patterns = [f"aten.{each}.*" for each in operators.split()]

    def register(change: Change) -> Change:
        def inject(at: Surgery) -> Injected | None:
            sites = [
                site
                for site in at.operators
                if site.floating
                and any(fnmatch(site.place.what, each) for each in patterns)
                and max(map(_count, site.shapes)) > 8
                and fits(site)
            ]
            if not sites:
                return None
            site = at.rng.choice(sites)
            fault = _Fault(at.places, site.place, change, at.strength, at.rng.randrange(1 << 30))
            at.stack.enter_context(fault)
            return Injected((site.place.path,), operator=site.place)

        kind(name, Nature.KERNEL, graded=graded, large=large)(inject)
        return change

    return register


def _count(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())


def _rows(site: Site) -> bool:
    return len(site.shapes[0]) >= 2 and site.shapes[0][-2] > 1


def _norm(tensor: torch.Tensor) -> float:
    return float(tensor.double().nan_to_num(0, 0, 0).norm())


PRODUCTS = "mm addmm bmm _grouped_mm convolution _scaled_dot_product_flash_attention_for_cpu"
ANY = f"{PRODUCTS} add mul pow mean rsqrt silu gelu _softmax cat embedding div tanh sin cos"


@_fault("kernel: result scaled", ANY, graded=True, large=0.02)
def _scaled(run: Execution) -> torch.Tensor:
    return run.out * (1 + run.strength)


@_fault("kernel: one bad element", ANY, graded=True, large=0.2)
def _one_element(run: Execution) -> torch.Tensor:
    wrong = run.out.clone().flatten()
    finite = wrong.double().isfinite() & (wrong.double().abs() < 1e4)
    places = finite.nonzero().flatten().tolist()
    wrong[run.rng.choice(places)] += run.strength * _norm(wrong[finite])
    return wrong.view(run.out.shape)


def _one_value(value: float) -> Change:
    def change(run: Execution) -> torch.Tensor:
        wrong = run.out.clone().flatten()
        wrong[run.rng.randrange(len(wrong))] = value
        return wrong.view(run.out.shape)

    return change


_fault("kernel: NaN at one place", ANY)(_one_value(torch.nan))
_fault("kernel: Inf at one place", ANY)(_one_value(torch.inf))


def _sixteen_bits(dtype: torch.dtype) -> torch.dtype:
    return torch.bfloat16 if dtype is torch.float32 else dtype


@_fault("kernel: half-precision accumulation", "mm bmm addmm")
def _accumulate(run: Execution) -> torch.Tensor:
    left, right = run.args[-2:]
    narrow = _sixteen_bits(run.out.dtype)
    sums = torch.zeros_like(run.out, dtype=narrow)
    if len(run.args) == 3:
        sums = sums + run.args[0].to(narrow)
    for k in range(left.shape[-1]):
        sums = sums + left[..., k : k + 1].to(narrow) * right[..., k : k + 1, :].to(narrow)
    return sums.to(run.out.dtype)


@_fault("kernel: softmax over the wrong dim", "_softmax", fits=_rows)
def _softmax(run: Execution) -> torch.Tensor:
    return run.again(run.args[0], -2, *run.args[2:])


@_fault("kernel: tail of the sum dropped", "mm bmm addmm")
def _tail(run: Execution) -> torch.Tensor:
    left, right = run.args[-2:]
    return run.again(*run.args[:-2], left[..., :-1], right[..., :-1, :])


@_fault("kernel: row range off by one", f"{PRODUCTS} add mul embedding _softmax", fits=_rows)
def _shifted_rows(run: Execution) -> torch.Tensor:
    return run.out.roll(1, -2)


@_fault("kernel: stale buffer", "mm addmm bmm add mul silu gelu _softmax")
def _stale(run: Execution) -> torch.Tensor:
    earlier = run.earlier.get(tuple(run.out.shape))
    return run.out if earlier is None else earlier.to(run.out.dtype)


@_fault("kernel: rounds to int8", "mm addmm bmm add mul silu gelu embedding")
def _int8(run: Execution) -> torch.Tensor:
    out = run.out.float()
    usual = out[out.abs() < 1e4]
    step = float(usual.abs().max()) / 127 if usual.numel() else 1.0
    rounded = (out / step).round() * step
    return rounded.where(out.abs() < 1e4, out).to(run.out.dtype)


@_fault("kernel: result cast to a narrow type", "mm addmm bmm add mul silu gelu _softmax rsqrt")
def _narrow(run: Execution) -> torch.Tensor:
    narrow = torch.bfloat16 if run.out.dtype is not torch.bfloat16 else torch.float8_e4m3fn
    return run.out.to(narrow).to(run.out.dtype)


@_fault("kernel: bias forgotten", "addmm native_layer_norm")
def _no_bias(run: Execution) -> torch.Tensor:
    if str(run.func).startswith("aten.addmm"):
        return run.args[1] @ run.args[2]
    source, shape, weight, _, epsilon = run.args
    return run.again(source, shape, weight, None, epsilon)


@_fault("kernel: own epsilon", "native_layer_norm", graded=True, large=0.1)
def _epsilon(run: Execution) -> torch.Tensor:
    source, shape, weight, bias, epsilon = run.args
    size = float(source.float().var(-1).mean())
    return run.again(source, shape, weight, bias, epsilon + 2 * size * run.strength)


@_fault("kernel: another activation", "silu gelu tanh")
def _activation(run: Execution) -> torch.Tensor:
    x = run.args[0]
    if "tanh" in str(run.func):
        return torch.sigmoid(2.2 * x) * 2 - 1
    return x * torch.sigmoid(1.702 * x) if "silu" in str(run.func) else x * torch.sigmoid(x)


@_fault("kernel: last column not written", f"{PRODUCTS} add mul silu gelu")
def _unwritten(run: Execution) -> torch.Tensor:
    wrong = run.out.clone()
    wrong[..., -1] = 0
    return wrong


def _blocks(site: Site) -> bool:
    return site.shapes[0][-1] % 4 == 0


@_fault("kernel: blocks of columns swapped", "mm addmm bmm clone cat", fits=_blocks)
def _swapped(run: Execution) -> torch.Tensor:
    first, second, *rest = run.out.chunk(4, -1)
    return torch.cat([second, first, *rest], -1)


@_fault("kernel: attention without its scale", "_scaled_dot_product_flash_attention_for_cpu")
def _attention(run: Execution) -> torch.Tensor:
    return run.again(*run.args, scale=1.0)


@_fault("kernel: attention not causal", "_scaled_dot_product_flash_attention_for_cpu")
def _not_causal(run: Execution) -> torch.Tensor:
    query, key, value = run.args[:3]
    return run.again(query, key, value, attn_mask=None)


@_fault("kernel: mean over one element less", "mean sum")
def _short_mean(run: Execution) -> torch.Tensor:
    source, *rest = run.args
    return run.again(source[..., :-1], *rest)


@_fault("kernel: cast truncates", "_to_copy", fits=lambda site: _count(site.shapes[0]) > 32)
def _truncates(run: Execution) -> torch.Tensor:
    source, out = run.args[0], run.out
    if out.dtype.itemsize != 2 or source.dtype is not torch.float32:
        return out
    below = out.float().abs() > source.abs()
    whole = out.view(torch.int16)
    return whole.where(~below, whole - 1).view(out.dtype)
