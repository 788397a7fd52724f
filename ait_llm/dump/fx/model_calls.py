"""Which call of the program's model an execution of a graph belongs to.

A model whose code the compiler takes in pieces, or whose layers are compiled one by one, runs many
graphs in one forward pass. What they have in common is the outermost module that is being called
while they run: that call is a step of the program, as it is for hooks on the model.
"""

from __future__ import annotations

import itertools
import sys
from types import FrameType

_FILE = "torch/nn/modules/module.py"
_CALLS = frozenset({"_wrapped_call_impl", "_call_impl"})
# A local variable of its frame tells a call again, and goes with it. Frames themselves cannot be
# kept: they hold the tensors of the program, and the next one may lie at the same address.
_MARK = "ait_llm number of this call"
_numbers = itertools.count()


def model_call() -> int | None:
    """Number of the call of the outermost module around the caller, from 0.

    Returns:
        None outside of all modules: in a compiled function, or in a backward pass.
    """
    frame: FrameType | None = sys._getframe(1)
    outermost = None
    while frame is not None:
        code = frame.f_code
        # torch.compile may run other code of that name, so that code objects prove nothing
        if code.co_name in _CALLS and code.co_filename.replace("\\", "/").endswith(_FILE):
            outermost = frame
        frame = frame.f_back
    if outermost is None:
        return None
    found = outermost.f_locals.get(_MARK)
    if found is None:
        found = outermost.f_locals[_MARK] = next(_numbers)
    return int(found)
