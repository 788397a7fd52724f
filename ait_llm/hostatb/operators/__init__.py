"""How the library presents each operator: tensor names and kernels, in ``operator_specs``."""

from ait_llm.hostatb.operators import attention, elementwise, linear, movement, norm, sampling
from ait_llm.hostatb.spec import operator_specs

__all__ = [
    "attention",
    "elementwise",
    "linear",
    "movement",
    "norm",
    "operator_specs",
    "sampling",
]
