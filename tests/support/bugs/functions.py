"""Programs whose code does something else: functions that are called otherwise, or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from bugs.model import Injected, Nature, Site, Surgery, kind
from bugs.places import Numbering, Place, Places
from bugs.tracing import tensors

_NAMES = {"__add__": "add", "__radd__": "add", "__mul__": "mul", "__rmul__": "mul"}
Func = Callable[..., Any]
Replace = Callable[[Func, tuple[Any, ...], dict[str, Any]], Any]


def _name(func: Func) -> str:
    name = func.__name__
    return _NAMES.get(name, name)


class Functions(TorchFunctionMode):
    """Records which functions of torch a model calls."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.sites: list[Site] = []
        self._numbering = Numbering(places)

    def __torch_function__(
        self, func: Func, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """The result of the function."""
        place = self._numbering.next(_name(func))
        result = func(*args, **(kwargs or {}))
        if place is not None:
            given = list(tensors(args))
            shapes = tuple(tuple(each.shape) for each in given)
            numbers = tuple(each for each in args if isinstance(each, (int, float)))
            floating = bool(given) and given[0].is_floating_point()
            self.sites.append(Site(place, shapes, floating, numbers))
        return result


class _Otherwise(TorchFunctionMode):
    """Replaces the calls of one function at one place, in every step."""

    def __init__(self, places: Places, place: Place, replace: Replace) -> None:
        super().__init__()
        self._numbering = Numbering(places)
        self._place, self._replace = place, replace

    def __torch_function__(
        self, func: Func, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """The result of the function, or of what is called instead."""
        kwargs = kwargs or {}
        here = self._numbering.next(_name(func))
        if here is not None and _same(here, self._place):
            return self._replace(func, args, kwargs)
        return func(*args, **kwargs)


def _same(one: Place, other: Place) -> bool:
    return (one.path, one.what, one.call) == (other.path, other.what, other.call)


def _code(
    name: str, path: str, function: str, fits: Callable[[Site], bool] = lambda site: True
) -> Callable[[Replace], Replace]:
    """Register a bug in the code of modules whose path matches a pattern."""
    functions, pattern = function.split(), re.compile(path)

    def register(replace: Replace) -> Replace:
        words = tuple(each for each in ("mask", "position") if each in name)

        def inject(at: Surgery) -> Injected | None:
            sites = [
                site
                for site in at.functions
                if site.place.what in functions and pattern.search(site.place.path) and fits(site)
            ]
            if not sites:
                return None
            site = at.rng.choice(sites)
            at.stack.enter_context(_Otherwise(at.places, site.place, replace))
            return Injected((site.place.path,), words=words)

        kind(name, Nature.CODE)(inject)
        return replace

    return register


_LAYER = r"(layers?|h|block|blocks)\.\d+(\.layer\.\d+)?$"
_ATTENTION = r"(self_attn|attn|attention|SelfAttention|self|EncDecAttention)$"
_NORM = r"norm|ln_|LayerNorm"
_ROUTER = r"(gate|router)$"
_BASE = r"^(model|model\.language_model|transformer|gpt_neox|)$"


def _two_alike(site: Site) -> bool:
    return len(site.shapes) == 2 and site.shapes[0] == site.shapes[1] and site.floating


def _four(site: Site) -> bool:
    return bool(site.shapes) and len(site.shapes[0]) == 4 and site.floating


def _scores(site: Site) -> bool:
    return _four(site) and len(site.shapes) == 1


def _masked(site: Site) -> bool:
    return _four(site) and len(site.shapes) == 2 and site.shapes[1][1] == 1


def _plus_one(site: Site) -> bool:
    return len(site.shapes) == 1 and site.numbers == (1.0,)


@_code("code: residual skipped", _LAYER, "add", _two_alike)
def _skip_residual(func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[1]


@_code("code: attention scale missing", _ATTENTION, "mul div __truediv__", _scores)
def _no_scale(func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0]


@_code("code: softmax over the wrong dim", _ATTENTION, "softmax", _four)
def _softmax(func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(args[0], **kwargs | {"dim": -2})


@_code("code: norm by variance", _NORM, "mean", lambda site: site.floating)
def _variance(func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(args[0] - func(args[0], *args[1:], **kwargs), *args[1:], **kwargs)


@_code("code: norm without + 1", _NORM, "add", _plus_one)
def _no_one(func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return next(tensors(args))


def _five(site: Site) -> bool:
    return bool(site.shapes) and len(site.shapes[0]) == 5


@_code("code: repeated kv heads in the wrong order", _ATTENTION, "reshape", _five)
def _repeat(func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(args[0].transpose(1, 2), *args[1:], **kwargs)


@_code("code: router not normalised", _ROUTER, "__itruediv__ div __truediv__ div_")
def _not_normalised(func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0]


@_code("code: mask not added", _ATTENTION, "add", _masked)
def _no_mask(func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0]


@_code("code: mask off by one", _ATTENTION, "add", _masked)
def _mask(func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    mask = args[1]
    return func(args[0], torch.cat([mask[..., :1], mask[..., :-1]], -1), **kwargs)


@_code("code: product in half precision", r"", "linear matmul bmm", lambda site: site.floating)
def _half(func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    narrow = [each.bfloat16() if isinstance(each, torch.Tensor) else each for each in args]
    return func(*narrow, **kwargs).to(args[0].dtype)


@_code("code: rounded to int8 where it is not wanted", r"", "linear silu gelu")
def _int8(func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = func(*args, **kwargs)
    step = result.abs().amax() / 127
    return (result / step).round() * step


@_code("code: cap of logits missing", r"", "tanh", lambda site: site.floating)
def _no_cap(func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0]


@_code("code: rotary with the wrong sign", _ATTENTION, "neg __neg__")
def _sign(func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0]


@_code("code: cache off by one", _ATTENTION, "cat", lambda site: _four(site) and _two_long(site))
def _cache(func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    old, new = args[0]
    return func([old[..., :-1, :], new, old[..., -1:, :]], *args[1:], **kwargs)


def _two_long(site: Site) -> bool:
    if len(site.shapes) != 2:
        return False
    old, new = site.shapes
    return old[-1] == new[-1] and old[-2] > 1 and new[-2] == 1


@_code("code: positions off by one", _BASE, "arange")
def _positions(func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs) + 1


@_code("code: upcast forgotten", _NORM, "to float", lambda site: site.floating)
def _no_upcast(func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0]


@_code("code: top-k off by one", _ROUTER, "topk")
def _topk(func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    values, places = func(args[0], args[1] + 1, *args[2:], **kwargs)
    return values[..., 1:], places[..., 1:]
