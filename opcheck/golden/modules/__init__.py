"""Modules of torch and of well-known libraries as golden operators.

A module is known by the name of its class, and only if what its capture says of it leaves no
choice: all numbers that its definition needs are recorded, and its parameters are those of the
class and no others. See :mod:`~ait_llm.opcheck.golden.modules.table`. Nothing here knows what a
dump is.
"""

from ait_llm.opcheck.golden.modules import (
    activations,
    bitsandbytes,
    engines,
    experts,
    fused_experts,
    integer_groups,
    layers,
    mxfp4_experts,
    norms,
    paged,
    quantised,
    rotary,
    rounded_inputs,
    routers,
)
from ait_llm.opcheck.golden.modules.fused_experts import why_unknown
from ait_llm.opcheck.golden.modules.layers import legal_choice
from ait_llm.opcheck.golden.modules.table import (
    Compute,
    Given,
    definition_of,
    is_whole,
    module_function,
    needs_results,
    why_lost,
)

__all__ = [
    "Compute",
    "Given",
    "activations",
    "bitsandbytes",
    "definition_of",
    "engines",
    "experts",
    "fused_experts",
    "integer_groups",
    "is_whole",
    "layers",
    "legal_choice",
    "module_function",
    "mxfp4_experts",
    "needs_results",
    "norms",
    "paged",
    "quantised",
    "rotary",
    "rounded_inputs",
    "routers",
    "why_lost",
    "why_unknown",
]
