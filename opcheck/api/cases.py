"""From one recorded call of a function or method to its golden operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from ait_llm.dumps.api_names import parse_name
from ait_llm.dumps.api_values import ApiValue
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.opcheck.api.arguments import arguments_of
from ait_llm.opcheck.api.backward import backward_golden
from ait_llm.opcheck.api.collective_calls import PREFIX
from ait_llm.opcheck.api.collectives import collective_case
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
    from ait_llm.opcheck.golden.aten.kinds import PLACES, why_unchecked
    from ait_llm.opcheck.golden.functions import golden_function

    name = parse_name(operation.name)
    if operation.api_name.startswith(PREFIX):
        return collective_case(operation)
    if operation.direction == "backward":
        return _backward_case(operation)
    if operation.direction != "forward":
        return NoCase("are no calls")
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
    if (reason := why_unchecked(f"aten.{name.type}.default")) == PLACES:
        return NoCase(reason)
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


def with_forward(operations: Sequence[Operation]) -> list[Operation]:
    """The same; records of backward passes get the call that they belong to."""

    def key(operation: Operation) -> tuple[object, ...]:
        where = operation.device, operation.pid, operation.rank, operation.step
        return (*where, parse_name(operation.name).api, operation.call)

    calls = {key(one): one for one in operations if one.direction == "forward"}
    return [
        replace(one, forward=calls.get(key(one))) if one.direction == "backward" else one
        for one in operations
    ]


def _backward_case(operation: Operation) -> Case | NoCase:
    """How the backward pass of a call is computed again, from the call's own arguments."""
    from ait_llm.opcheck.cases import values_of

    call = operation.forward
    if call is None:
        return NoCase("are of the backward pass, and their calls were not recorded")
    name = parse_name(call.name)
    known = api_case(call)
    if name.is_module or isinstance(known, NoCase):
        return NoCase("are of the backward pass of calls that are not checked")
    if is_in_place(name.type) or known.missing:
        return NoCase("are of the backward pass of calls that write to their arguments")
    args, kwargs = arguments_of(name.type, call.values, _placed)
    inputs = [tensor for tensor in call.inputs if str(tensor.ir_name).startswith("input")]
    labels = [str(tensor.ir_name) for tensor in inputs]
    wanted = {value.label for value in call.values if value.requires_grad}
    forward = _Call(name.type, _functions().look_up(name), args, kwargs, labels)
    outputs = dict(enumerate(operation.outputs))
    arriving = [one for one in operation.inputs if str(one.ir_name).startswith("input")]
    saved = all(one.has_data or 0 in one.shape for one in [*arriving, *outputs.values()])
    if not saved or not outputs:
        return NoCase("are of the backward pass and have no values")
    golden = backward_golden(
        name.type,
        forward,
        [_shape_of(one) for one in inputs],
        [label in wanted for label in labels],
        [_shape_of(one) for one in arriving],
        [_shape_of(one) for one in operation.outputs],
    )
    if golden is None:
        return NoCase("are of the backward pass, and what was recorded is not what it makes")
    return Case(
        golden,
        {},
        lambda: [values_of(tensor) for tensor in (*inputs, *arriving)],
        lambda: outputs,
    )


def _shape_of(tensor: Tensor) -> tuple[tuple[int, ...], torch.dtype]:
    import torch

    element = getattr(torch, tensor.dtype.torch_name or "", torch.float64)
    return tuple(tensor.shape), element


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
