"""The chips that the acceleration library has kernels for, where these compute differently.

A golden operator that asks for the chip (``by_soc`` of :class:`GoldenOp`) gets it as the parameter
``socVersion``, which the library never prints. Without it its declared arithmetic permits what the
kernels of any chip do.
"""

from __future__ import annotations

from enum import Enum

from ait_llm.errors import UsageError
from ait_llm.opcheck.golden.base import Params

SOC = "socVersion"


class Soc(str, Enum):
    """Families of chips, as tables of the library's cases name them."""

    ASCEND_310B = "Ascend310B"
    ASCEND_310P = "Ascend310P"
    ASCEND_910A = "Ascend910A"
    ASCEND_910B = "Ascend910B"
    ASCEND_910_93 = "Ascend910_93"
    ASCEND_950 = "Ascend950"


# Other names of the first generation, as devices report them.
_FIRST = ("ascend910pro", "ascend910premium")
# Their kernels are those of the matrix and vector units in one core.
_ONE_CORE = (Soc.ASCEND_310P, Soc.ASCEND_910A)
_TWO_CORES = (Soc.ASCEND_910B, Soc.ASCEND_910_93)


def soc_named(name: str) -> Soc:
    """The family that a chip belongs to: ``Ascend910B4``, ``Ascend310P3``, ``910b``.

    Raises:
        UsageError: it is none of them.
    """
    found = soc_of(name)
    if found is None:
        known = ", ".join(one.value for one in Soc)
        raise UsageError(f"unknown chip {name!r}; it begins with one of {known}")
    return found


def soc_of(name: object) -> Soc | None:
    """The same of what a dump says; None for what is no chip's name."""
    text = str(name).strip().lower()
    text = text if text.startswith("ascend") else f"ascend{text}"
    if text.startswith(_FIRST):
        return Soc.ASCEND_910A
    return next((one for one in Soc if text.startswith(one.value.lower())), None)


def is_one_core(params: Params) -> bool:
    """True if the chip is known to be one whose cores have matrix and vector units."""
    return soc_of(params.get(SOC, "")) in _ONE_CORE


def is_two_cores(params: Params) -> bool:
    """True if the chip is known to be one with cores of their own for either."""
    return soc_of(params.get(SOC, "")) in _TWO_CORES
