"""Repro capsules: one operator of a dump with all that shows that its numbers are wrong."""

from ait_llm.capsule.pipeline import Capsule, make_capsule

__all__ = ["Capsule", "make_capsule"]
