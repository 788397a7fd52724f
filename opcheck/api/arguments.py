"""From the JSON of a record back to the arguments of its call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ait_llm.dumps.api_values import ApiValue
from ait_llm.opcheck.api.unchecked import UncheckableError

if TYPE_CHECKING:
    from torch import Tensor

_TENSORS = frozenset({"torch.Tensor", "torch.nn.Parameter", "torch.nn.parameter.Parameter"})
_PLAIN: dict[str, type] = {"bool": bool, "int": int, "str": str}
_MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")

TensorMaker = Callable[[ApiValue], "Tensor"]


def arguments_of(
    api: str, values: Sequence[ApiValue], tensor: TensorMaker
) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments.

    Tuples come as lists, as they were recorded; devices as ``torch.device("cpu")``.

    Args:
        api: name of the function without prefix.
        values: of its forward record.
        tensor: makes its tensors.

    Raises:
        UncheckableError: the record lacks one, or it cannot be made here.
        FormatError: the record is damaged.
    """
    args: dict[int | str, Any] = {}
    kwargs: dict[int | str, Any] = {}
    for value in values:
        if value.section == "input" and value.keys:
            _put(kwargs if value.keyword else args, value, argument_of(value, tensor))
    positional = _with_lists(args) if args else []
    keyword = {str(key): _with_lists(each) for key, each in kwargs.items()}
    if isinstance(positional, dict):  # not lists in the file
        raise UncheckableError("its arguments were not recorded by position")
    if api == "__setitem__" and len(positional) > 1 and isinstance(positional[1], list):
        positional[1] = tuple(positional[1])  # x[0, 1:]; an index is seldom a list
    return positional, keyword


def gradients_of(values: Sequence[ApiValue], tensor: TensorMaker) -> list[Tensor | None]:
    """Gradients that arrive in a backward call; None for outputs that have none."""
    return [
        tensor(value) if value.is_tensor else None for value in values if value.section == "input"
    ]


def argument_of(value: ApiValue, tensor: TensorMaker) -> Any:
    """One leaf of the containers that a call was given."""
    recorded = value.recorded
    if recorded is None or recorded == []:
        return recorded
    if not recorded:
        raise UncheckableError(
            f"{value.label} was not recorded; msprobe leaves out types given by position"
        )
    kind, content = value.type or "", value.value
    if kind in _TENSORS:
        return tensor(value)
    if kind == "numpy.ndarray" and value.is_tensor:
        return tensor(value).detach().numpy()
    if kind == "float" and isinstance(content, (int, float)):
        return float(content)
    if kind in _PLAIN and isinstance(content, _PLAIN[kind]):
        return content
    made = _other(kind, content)
    if made is None:
        raise UncheckableError(f"{value.label} is a {kind or type(recorded).__name__}")
    return made


def _other(kind: str, content: Any) -> Any:
    """A value that JSON has no form for; None if it is not understood."""
    import torch

    if kind == "torch.dtype":
        found = getattr(torch, str(content).rpartition(".")[2], None)
        return found if isinstance(found, torch.dtype) else None
    if kind == "torch.device":
        return torch.device("cpu")  # the side that runs it sets its own
    if kind == "torch.memory_format":
        name = str(content).rpartition(".")[2]
        return getattr(torch, name) if name in _MEMORY_FORMATS else None
    if kind == "ellipsis":
        return ...
    if kind == "slice" and isinstance(content, list) and 1 <= len(content) <= 3:
        return slice(*content) if _are_integers(content) else None
    if kind == "torch.Size" and isinstance(content, list) and _are_integers(content):
        return torch.Size(content)
    if kind == "complex" and isinstance(content, str):
        return complex(content)
    is_number = isinstance(content, (bool, int, float))
    if kind.rstrip("0123456789_") in ("int", "uint", "float", "bool") and is_number:
        return content  # a scalar of NumPy
    return None


def _are_integers(values: Iterable[Any]) -> bool:
    return all(value is None or isinstance(value, int) for value in values)


def _put(root: dict[int | str, Any], value: ApiValue, made: Any) -> None:
    holder = root
    for key in value.keys[:-1]:
        holder = holder.setdefault(key, {})
    holder[value.keys[-1]] = _Leaf(made)


class _Leaf:
    """An argument among the containers that are being put together again."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _with_lists(node: Any) -> Any:
    if isinstance(node, _Leaf):
        return node.value
    if all(isinstance(key, int) for key in node):
        return [_with_lists(node[key]) for key in sorted(node)]
    return {key: _with_lists(each) for key, each in node.items()}
