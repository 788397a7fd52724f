"""From one recorded call of a function or method to its golden operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from ait_llm.dumps.api_names import parse_name
from ait_llm.dumps.api_values import ApiValue
from ait_llm.dumps.model import Operation
from ait_llm.errors import AitError
from ait_llm.opcheck.api.arguments import arguments_of
from ait_llm.opcheck.api.functions import Functions, drops, is_in_place
from ait_llm.opcheck.api.unchecked import UncheckableError
from ait_llm.opcheck.case import Case, NoCase

if TYPE_CHECKING:
    import torch

    from ait_llm.opcheck.golden.base import Accepts, Params

_DRAW = "draw random numbers"
_NO_TENSOR = frozenset({"item", "numpy", "tolist"})
_ORDERS = frozenset({"topk", "sort", "max", "min", "median", "kthvalue"})


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor stands among the arguments, in place of it.

    Attributes:
        label: of the recorded value.
    """

    label: str


def api_case(operation: Operation) -> Case | NoCase:
    """How a call of a function of torch is computed again, from its recorded arguments.

    Only functions of the list that captures record from are called, see
    :mod:`~ait_llm.opcheck.api.functions`.
    """
    from ait_llm.opcheck.cases import values_of
    from ait_llm.opcheck.golden.functions import golden_function

    name = parse_name(operation.name)
    if operation.direction != "forward":
        return NoCase("are of the backward pass, or no call")
    if name.is_module:
        return NoCase("are modules, whose attributes such dumps do not have")
    try:
        functions = _functions().look_up(name)
        args, kwargs = arguments_of(name.type, operation.values, _placed)
        if drops(name.type, args, kwargs):
            return NoCase(_DRAW)
    except UncheckableError as error:
        return NoCase(_DRAW) if "random" in error.reason else NoCase()
    except AitError as error:
        return NoCase(lost=str(error))
    outputs = dict(enumerate(operation.outputs))
    if not outputs or name.type in _NO_TENSOR:
        return NoCase("return no tensor")
    inputs = [tensor for tensor in operation.inputs if str(tensor.ir_name).startswith("input")]
    labels = [str(tensor.ir_name) for tensor in inputs]
    call = _Call(name.type, functions, args, kwargs, labels)
    in_place = is_in_place(name.type)
    accepts = accepts_other_order(name.type, args, kwargs)
    golden = golden_function(name.api, call, accepts=accepts, in_place=in_place)
    saved = all(one.has_data or 0 in one.shape for one in [*inputs, *outputs.values()])
    return Case(
        golden,
        dict(operation.params),
        lambda: [values_of(tensor) for tensor in inputs],
        lambda: outputs,
        "" if saved else "its tensors were not saved; capture with the task tensor",
    )


@lru_cache(maxsize=1)
def _functions() -> Functions:
    return Functions()


def _placed(value: ApiValue) -> Any:
    if value.type == "numpy.ndarray":
        raise UncheckableError(f"{value.label} is an array of NumPy")
    return _Place(value.label)


class _Call:
    """One call with its arguments; tensors are put in where they stood.

    Args:
        api: name of the function.
        functions: that may be meant; the first that takes the arguments is.
        args, kwargs: with places of tensors.
        labels: of the tensors that it is called with, in their order.
    """

    def __init__(
        self,
        api: str,
        functions: Sequence[Callable[..., Any]],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        labels: Sequence[str],
    ) -> None:
        self._api = api
        self._functions = list(functions)
        self._args = args
        self._kwargs = kwargs
        self._labels = labels

    def __call__(self, tensors: Sequence[torch.Tensor | None]) -> Any:
        """Call it on copies: some functions write to what they are given."""
        if len(self._functions) == 1:
            return self._called(self._functions[0], tensors)
        for function in self._functions:
            try:
                found = self._called(function, tensors)
            except (TypeError, RuntimeError, ValueError, AttributeError):
                continue
            self._functions = [function]
            return found
        return _refuse(f"no function by the name of {self._api} takes these arguments")

    def _called(self, function: Callable[..., Any], tensors: Sequence[torch.Tensor | None]) -> Any:
        own = {
            label: tensor.clone()
            for label, tensor in zip(self._labels, tensors, strict=True)
            if tensor is not None
        }
        args = [_filled(value, own) for value in self._args]
        kwargs = {name: _filled(value, own) for name, value in self._kwargs.items()}
        found = function(*args, **kwargs)
        if args and (self._api == "__setitem__" or (found is None and is_in_place(self._api))):
            return args[0]
        return found


def accepts_other_order(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Accepts | None:
    """Whether another order of equal values was returned; None for functions that order nothing.

    Args:
        api: name of the function without prefix.
        args, kwargs: of the call.
    """
    if api not in _ORDERS:
        return None
    from ait_llm.opcheck.golden.aten import is_other_order

    numbers = [value for value in args[1:] if type(value) is int]
    dim = kwargs.get("dim", numbers[-1] if len(numbers) > (api == "topk") else -1)

    def is_legal(
        inputs: Sequence[torch.Tensor | None], outputs: Sequence[torch.Tensor], params: Params
    ) -> bool:
        rank = 0 if not inputs or inputs[0] is None else inputs[0].dim()
        along = dim % rank if type(dim) is int and rank else dim
        return is_other_order(inputs, outputs, {"input_dim": along})

    return is_legal


def _filled(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(value, _Place):
        return tensors[value.label]
    if type(value) in (list, tuple):
        return type(value)(_filled(each, tensors) for each in value)
    if isinstance(value, dict):
        return {key: _filled(each, tensors) for key, each in value.items()}
    return value


def _refuse(reason: str) -> NoReturn:
    from ait_llm.opcheck.golden import UnverifiableError

    raise UnverifiableError(reason)
