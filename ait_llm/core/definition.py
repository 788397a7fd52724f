"""A number, flag or name that defines an operation differently on both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DefinitionDifference:
    """What two operations that answer each other are defined by, and do not share.

    Attributes:
        op, golden_op: my operation and golden's.
        name, golden_name: what both sides call it; empty for the number that an operator was given,
            and for what the class itself says.
        golden, mine: its values, of types of JSON.
        decides: it is known to decide values; others may.
        multiplies: it is a factor of what both compute in one way, and no rounding of the other.
        step, call, device, pid: of my operation.
    """

    op: str
    golden_op: str
    name: str
    golden_name: str
    golden: Any
    mine: Any
    decides: bool = True
    multiplies: bool = False
    step: int = 0
    call: int = 0
    device: int = -1
    pid: int = -1

    @property
    def text(self) -> str:
        """```scaling` of `model.layers.2.self_attn` is 1.0 instead of 0.25``."""
        values = f"{_shown(self.mine)} instead of {_shown(self.golden)}"
        if self.name:
            text = f"`{self.name}` of `{self.op}` is {values}"
        elif isinstance(self.mine, str):
            text = f"the function of `{self.op}` is {values}"
        else:
            text = f"the number given to `{self.op}` is {values}"
        if self.golden_name and self.golden_name != self.name:
            text += f" (golden has it as `{self.golden_name}` of `{self.golden_op}`)"
        return text


def _shown(value: Any) -> str:
    """A number as float32 has it; one that is whole with its point; an empty text as quotes."""
    if value == "":
        return "''"
    if not isinstance(value, float) or value.is_integer():
        return str(value)
    return f"{value:.7g}"
