"""Whether what runs only proposes tokens, of which the model that generates has to make sure."""

from __future__ import annotations

import sys
from types import FrameType

_PROPOSERS = "transformers.generation.candidate_generator"


def is_proposing() -> bool:
    """True within a candidate generator of ``generate``.

    It is given the logits processors of the model that it proposes to, and lets them see the logits
    of an assistant model, or marks of what it found in the prompt.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == _PROPOSERS:
            return True
        frame = frame.f_back
    return False
