"""What single torch operators are, by their names: ``aten.add.Tensor``."""

from __future__ import annotations

from functools import lru_cache

from ait_llm.dumps.model import Operation, Tensor

# They hand out memory whose content nobody has written.
_UNINITIALISED = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty"),
        *("new_empty_strided", "irecv", "batch_p2p_ops"),  # what is received comes later
    }
)
# Collectives whose first argument is what they fill with what ranks tell one another.
_RECEIVING = frozenset(
    {"_allgather_base_", "_reduce_scatter_base_", "allgather_", "alltoall_", "reduce_scatter_"}
)
# vLLM's products on a CPU: their last argument is the address of a kernel.
_WITH_ADDRESS = frozenset({"onednn_mm", "onednn_scaled_mm"})
# They write every element of their first argument, whatever it held.
_FILLING = _RECEIVING | {
    *("copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "exponential_", "bernoulli_")
}
_FIRST = "input_0"
# Spellings of one operation that programs and versions use for each other.
_SAME = {
    "_unsafe_view": "view",
    "reshape": "view",
    "_reshape_alias": "view",
    "add_": "add",
    "mul_": "mul",
    "sub_": "sub",
    "div_": "div",
    "_safe_softmax": "_softmax",
    "copy": "copy_",
}
# They change where elements lie or what they are called, never their values.
_MOVING = frozenset(
    {
        "alias",
        "clone",
        "contiguous",
        "detach",
        "expand",
        "lift_fresh",
        "permute",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "t",
        "transpose",
        "unbind",
        "unsqueeze",
        "view",
    }
)

# Those of them that leave elements out.
_PARTING = frozenset({"select", "slice", "split", "split_with_sizes", "unbind"})

# Sums of products that one library of a machine computes.
_PRODUCTS = frozenset({"addmm", "baddbmm", "bmm", "linear", "matmul", "mm"})


def is_product(name: str) -> bool:
    """True for the name of an operator that multiplies matrices: ``aten.bmm.default``."""
    return _kind_of(name) in _PRODUCTS


def only_moves(kind: str) -> bool:
    """True for the kind of an operator that gives all elements that it reads, unchanged."""
    return kind in _MOVING and kind not in _PARTING


def kind_of(operation: Operation) -> str:
    """The operator without its namespace and overload: ``add``; spellings of one are one."""
    return _kind_of(operation.type)


@lru_cache(maxsize=1024)  # a program has few kinds of operators
def _kind_of(name: str) -> str:
    kind = name.partition(".")[2].partition(".")[0]
    return _SAME.get(kind, kind)


def is_in_place(operation: Operation) -> bool:
    """True for an operator that writes into its first argument: ``aten.copy_.default``."""
    return operation.type.partition(".")[2].partition(".")[0].endswith("_")


def is_uninitialised(operation: Operation) -> bool:
    """True for an operator that hands out memory without writing it."""
    return kind_of(operation) in _UNINITIALISED


def is_address(operation: Operation, tensor: Tensor) -> bool:
    """True for an argument that says where something is in the memory of its process."""
    last = operation.inputs[-1:]
    return (
        kind_of(operation) in _WITH_ADDRESS
        and tensor.role == "in"
        and tensor.index == last[0].index
        and last[0].dtype.label == "int64"
    )


def is_received_into(operation: Operation, tensor: Tensor) -> bool:
    """True for a tensor, perhaps of a list, that a collective overwrites without reading it."""
    is_first = tensor.role == "in" and tensor.stem.startswith(_FIRST)
    return is_first and operation.type.startswith("c10d.") and kind_of(operation) in _RECEIVING


def writes_all(operation: Operation) -> bool:
    """True for an operator that writes every element of the tensor that it is given to write."""
    overload = operation.type.rpartition(".")[2]
    return kind_of(operation) in _FILLING or overload == "out" or overload.endswith("_out")


def computes(operation: Operation) -> bool:
    """True for an operator whose result is a value of its own, even if its numbers are not new."""
    return operation.type.count(".") >= 2 and kind_of(operation) not in _MOVING


def is_moving(operation: Operation) -> bool:
    """True for an operator that only moves elements or looks at them in another shape."""
    return kind_of(operation) in _MOVING
