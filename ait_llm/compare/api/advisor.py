"""Where to look first: the first row that fails, and what its place suggests."""

from __future__ import annotations

from dataclasses import dataclass

_NONE = "All data in comparison result meets the accuracy requirements."
_FORWARD_INPUT = (
    "1. Check whether the source of this input is right: the call before it, or the data.\n"
    "2. Check whether a call in place changed this tensor before it was saved.\n"
    "3. Check whether its memory was overwritten."
)
_FORWARD_OUTPUT = "The forward computation of this call is wrong: check its implementation."
_BACKWARD_INPUT = "Check whether the forward result of this call is affected first."
_BACKWARD_OUTPUT = "The backward computation of this call is wrong: check its implementation."
_RANDOM = (
    "This call may not be deterministic: run both sides again with seed_all(mode=True) and compare."
)
_BATCH_NORM = (
    "Statistics of a batch norm depend on the run: set training=False or affine=False, "
    "or use seed_all(mode=True)."
)
_UNSTEADY = ("conv2d", "conv3d", "matmul", "nll_loss", "layer_norm", "lstm")


@dataclass(frozen=True, slots=True)
class Advice:
    """What is written to ``advisor_{timestamp}.txt``.

    Attributes:
        line: 0-based number of the row in the table, None if no row fails.
        suspect: name of the row.
        text: what to do.
    """

    line: int | None
    suspect: str
    text: str

    def __str__(self) -> str:
        line = "NA" if self.line is None else str(self.line)
        return f"Line: {line}\nSuspect Nodes: {self.suspect or 'NA'}\nExpert Advice: {self.text}\n"


def advise(line: int, name: str, *, is_output: bool) -> Advice:
    """Advice on a row that fails."""
    return Advice(line, name, advice_on(name, is_output))


def nothing_to_advise() -> Advice:
    """What is said of a table without a row that fails."""
    return Advice(None, "", _NONE)


def advice_on(name: str, is_output: bool) -> str:
    """What the place of a failing item suggests.

    Args:
        name: of the item, ``Functional.linear.0.forward.input.0``.
        is_output: whether it comes out of the call.
    """
    backward = ".backward" in name
    if is_output and any(f".{function}." in name for function in _UNSTEADY):
        return _RANDOM
    if ".batch_norm." in name and ".forward.input.1" in name:
        return _BATCH_NORM
    if backward:
        return _BACKWARD_OUTPUT if is_output else _BACKWARD_INPUT
    return _FORWARD_OUTPUT if is_output else _FORWARD_INPUT
