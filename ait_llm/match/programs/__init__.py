"""Matches ATB operations with torch modules by structure; needs no table of the user."""

from ait_llm.match.programs.matching import match_atb_torch

__all__ = ["match_atb_torch"]
