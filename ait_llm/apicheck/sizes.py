"""How much a recorded call would make, told from shapes alone before it runs.

A record of a few bytes can ask for any size: ``repeat``, ``zeros`` and what is shaped by values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ait_llm.formats.repeats import FREE, PER_STORED
from ait_llm.opcheck.api.unchecked import UncheckableError

if TYPE_CHECKING:
    from torch import Tensor

# Fake tensors have no values; these are the functions whose sizes are values, with no other bound.
_BY_SUM = frozenset({"repeat_interleave"})
_BY_LARGEST = frozenset({"bincount", "one_hot"})


def check_size(
    function: Callable[..., Any],
    api: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    stored: int,
) -> None:
    """Refuse a call that makes far more than it is given.

    Args:
        function: what is called.
        api: its name without prefix, for what is sized by values and for the message.
        args, kwargs: with tensors; they are not changed.
        stored: bytes of its results that the dump holds, no fewer than their elements.

    Raises:
        UncheckableError: it makes too much.
    """
    tensors = list(_tensors((args, kwargs)))
    given = sum(each.numel() for each in tensors)
    most = FREE + PER_STORED * (given + stored)
    by_values = _by_values(api, args, tensors)
    if by_values > most:
        raise _too_large(api, by_values, given)
    if _bound((args, kwargs)) > FREE:
        made = _largest(function, args, kwargs)
        if made > most:
            raise _too_large(api, made, given)


def _too_large(api: str, made: int, given: int) -> UncheckableError:
    return UncheckableError(
        f"{api} makes {made} elements of {given} that were recorded; that is too large to be run"
    )


def _bound(value: Any) -> float:
    """More elements than most calls make: the product of all sizes, one axis with itself, too."""
    found, longest = 1.0, 1
    for each in _leaves(value):
        size = each
        if hasattr(each, "numel"):
            size = each.numel()
            longest = max(longest, *each.shape, 1)
        if isinstance(size, (int, float)) and math.isfinite(size):
            found *= max(1.0, abs(float(size)))
    return found * longest


def _by_values(api: str, args: Sequence[Any], tensors: Sequence[Tensor]) -> int:
    whole = [each for each in tensors if each.numel() and not each.is_floating_point()]
    whole = [each for each in whole if not each.is_complex()]
    if api in _BY_SUM and len(tensors) > 1 and whole:
        row = tensors[0].numel() // max(1, min(tensors[0].shape, default=1))
        return int(whole[-1].double().sum()) * max(1, row)
    if api in _BY_SUM and len(tensors) == 1 and len(args) == 1 and whole:
        return int(whole[0].double().sum())
    if api in _BY_LARGEST and whole:
        rows = whole[0].numel() if api == "one_hot" else 1
        return (int(whole[0].max()) + 1) * rows
    if api == "combinations" and tensors and not tensors[0].is_complex():
        chosen = next((each for each in args[1:2] if isinstance(each, int) and each >= 0), 2)
        return math.comb(tensors[0].numel(), chosen)
    return 0


def _largest(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Elements of the largest tensor that a call makes on its way; 0 where shapes do not tell."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    largest = 0

    class Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch is untyped here
        """Notes what each operator reserves."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
        ) -> Any:
            nonlocal largest
            made = func(*args, **(kwargs or {}))
            for each in _tensors(made):
                size = each.untyped_storage().nbytes() // each.itemsize
                largest = max(largest, size)
            return made

    fake = FakeTensorMode()

    def faked(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return fake.from_tensor(value.detach())
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            return type(value)(faked(each) for each in value)
        if isinstance(value, dict):
            return {key: faked(each) for key, each in value.items()}
        return value

    on_fakes, named = faked(tuple(args)), faked(dict(kwargs))
    try:
        meter = Meter()  # type: ignore[no-untyped-call]  # the same
        with fake, meter, torch.no_grad():
            results = function(*on_fakes, **named)
    except Exception:  # noqa: BLE001  # it depends on values, or the call itself will say why
        return largest
    # a view takes no memory, but its elements are compared one by one
    return max([largest, *(each.numel() for each in _tensors(results))])


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _tensors(value: Any) -> Iterator[Tensor]:
    import torch

    return (each for each in _leaves(value) if isinstance(each, torch.Tensor))
