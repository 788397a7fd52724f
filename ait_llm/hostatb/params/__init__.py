"""Parameter classes of the operations, named and built as in ``torch_atb``."""

from ait_llm.hostatb.params import (
    attention,
    cache,
    collective,
    elementwise,
    linear,
    movement,
    norm,
    sampling,
    train,
)
from ait_llm.hostatb.params.base import Param, Struct, UnknownFieldError, param_types
from ait_llm.hostatb.params.fields import FieldTypeError

__all__ = [
    "FieldTypeError",
    "Param",
    "Struct",
    "UnknownFieldError",
    "attention",
    "cache",
    "collective",
    "elementwise",
    "linear",
    "movement",
    "norm",
    "param_types",
    "sampling",
    "train",
]
