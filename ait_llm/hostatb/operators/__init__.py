"""How the library presents each operator: tensor names and kernels, in ``operator_specs``."""

from ait_llm.hostatb.operators import (
    attention,
    cache,
    collective,
    elementwise,
    experts,
    latent,
    linear,
    movement,
    norm,
    sampling,
    utility,
)
from ait_llm.hostatb.spec import operator_specs

__all__ = [
    "attention",
    "cache",
    "collective",
    "elementwise",
    "experts",
    "latent",
    "linear",
    "movement",
    "norm",
    "operator_specs",
    "sampling",
    "utility",
]
