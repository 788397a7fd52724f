"""What the library accepts, operator by operator; see :mod:`ait_llm.hostatb.acceptance.base`."""

from ait_llm.hostatb.acceptance import (
    cache,
    collective,
    elementwise,
    experts,
    laser,
    latent,
    linear,
    linear_parallel,
    movement,
    norm,
    paged,
    sampling,
    self_attention_inputs,
    train,
)
from ait_llm.hostatb.acceptance.base import Acceptance, Gate, acceptances

__all__ = [
    "Acceptance",
    "Gate",
    "acceptances",
    "cache",
    "collective",
    "elementwise",
    "experts",
    "laser",
    "latent",
    "linear",
    "linear_parallel",
    "movement",
    "norm",
    "paged",
    "sampling",
    "self_attention_inputs",
    "train",
]
