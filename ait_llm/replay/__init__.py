"""Replay: the captured graph computed again with golden operators, as a golden dump."""

from ait_llm.replay.outcome import MODES, Mode, Outcome, Skipped, Start
from ait_llm.replay.pipeline import replay

__all__ = ["MODES", "Mode", "Outcome", "Skipped", "Start", "replay"]
