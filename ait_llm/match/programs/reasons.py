"""Why a tensor has no counterpart."""

from __future__ import annotations

from ait_llm.dumps.model import Tensor
from ait_llm.match.programs.weights import is_weight
from ait_llm.program.describe import is_float, shape_of
from ait_llm.program.flow import Value
from ait_llm.program.program import Program
from ait_llm.program.roles import Role

WEIGHT = "it is a weight or a table"
OF_OTHER_TOKENS = "computes this of other tokens of these requests"
FOLDED = "the other side has folded the norm behind it into it"
UNINITIALISED = "it is memory that nobody has written yet"
ADDRESS = "it is an address in the memory of its process"
_CACHE_INPUTS = ("kcache", "vcache", "keycache", "valuecache", "slots", "blocktable")


def reason_for(side: Program, op: int, tensor: Tensor, other: str) -> str:
    """Why a tensor has none.

    Args:
        side: its program.
        op: its operation.
        tensor: the tensor.
        other: how to call the other side, ``the golden dump`` or ``my dump``.
    """
    if shape_of(tensor) is None:
        return "its file cannot be read"
    if side.has_modules:
        return _of_modules(side, op, tensor, other)
    return _of_operations(side, tensor, side.value(op, tensor), other)


def _of_operations(side: Program, tensor: Tensor, value: Value | None, other: str) -> str:
    roles = {side.roles[use.op] for use in value.uses} if value is not None else set()
    writers = {side.roles[use.op] for use in value.writes} if value is not None else set()
    names = (
        {(use.tensor.ir_name or "").lower() for use in value.uses} if value is not None else set()
    )
    if Role.CACHE in writers or any(name.startswith(_CACHE_INPUTS) for name in names):
        return f"{other} has no operator for the key/value cache"
    if value is not None and not value.writes:
        if is_weight(side, value):
            return f"{WEIGHT}, and {other} has no parameter for it"
        if Role.CORE in roles and is_float(tensor):
            return f"attention in {other} gets its mask in another form"
        if not is_float(tensor):
            return f"{other} has no counterpart for these indices or lengths"
    if Role.LINEAR in roles and not is_float(tensor):
        return f"it is quantised, and {other} is not"
    if Role.ROTARY in writers:
        return (
            f"{other} has no module that returns rotated queries and keys; "
            "dump it with --type torch torch-op to have its operators"
        )
    if Role.LINEAR in writers:
        return f"no projection of {other} that fits its place has its width"
    if Role.EXPERT in writers or Role.TOPK in writers:
        return f"the experts of {other} show nothing of their insides in this form"
    return f"no module of {other} reads or writes this value"


def _of_modules(side: Program, op: int, tensor: Tensor, other: str) -> str:
    role = side.roles[op]
    if role is Role.OPERATOR:
        return f"no operator of {other} answers this one"
    if role is Role.ACTIVATION:
        return f"{other} computes the activation within a larger operation"
    if not is_float(tensor):
        return f"{other} has no counterpart for these indices or masks"
    return f"no operation of {other} reads or writes this value"
