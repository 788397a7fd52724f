"""Calls of functions and modules, as API captures name them, in the words of torch."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ait_llm.program.roles import Role
from ait_llm.program.roles_fx import fx_role, kind_of

# Python's names of operators.
_OPERATORS: Mapping[str, str] = {
    **dict.fromkeys(("add", "radd", "iadd"), "add"),
    **dict.fromkeys(("sub", "rsub", "isub"), "sub"),
    **dict.fromkeys(("mul", "rmul", "imul"), "mul"),
    **dict.fromkeys(("truediv", "itruediv"), "div"),
    **dict.fromkeys(("matmul", "rmatmul", "imatmul"), "matmul"),
    **dict.fromkeys(("pow", "ipow"), "pow"),
    "neg": "neg",
    "getitem": "getitem",
}
# The first pattern found in the name of a module's class decides.
_CLASSES = (
    (r"rms_?norm", "rms_norm"),
    (r"layer_?norm", "layer_norm"),
    (r"rotary|rope(?![a-z])", "position_table"),
    (r"linear|^dense$|lm_?head", "linear"),
    (r"embedding", "embedding"),
    (r"swiglu|silu_?and_?mul", "swiglu"),
    (r"silu|swish", "silu"),
    (r"gelu", "gelu"),
    (r"relu", "relu"),
    (r"dropout|identity", "identity"),
)
_DUNDER = re.compile(r"__(\w+)__")


def api_kind(level: str, name: str) -> str:
    """What a call computes, in the words of torch.

    Args:
        level: ``Functional``, ``Tensor``, ``Torch``, ``Module``, ….
        name: of the function, or the class of the module.
    """
    if level == "Module":
        text = name.lower()
        return next((kind for pattern, kind in _CLASSES if re.search(pattern, text)), name)
    found = _DUNDER.fullmatch(name)
    if found is not None:
        return _OPERATORS.get(found[1], name)
    return kind_of(f"aten.{name}")


def api_role(level: str, name: str) -> Role:
    """What one call does by itself; several make a composite together."""
    kind = api_kind(level, name)
    return Role.GATED if kind == "swiglu" else fx_role(f"aten.{kind}.default")
