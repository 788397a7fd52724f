"""What the library accepts, operator by operator; see :mod:`ait_llm.hostatb.acceptance.base`."""

from ait_llm.hostatb.acceptance import (
    collective,
    elementwise,
    experts,
    laser,
    latent,
    linear,
    linear_parallel,
    sampling,
    train,
)
from ait_llm.hostatb.acceptance.base import Acceptance, Gate, acceptances

__all__ = [
    "Acceptance",
    "Gate",
    "acceptances",
    "collective",
    "elementwise",
    "experts",
    "laser",
    "latent",
    "linear",
    "linear_parallel",
    "sampling",
    "train",
]
