"""Matches ATB operations with right modules by structure; needs no table of the user."""

from ait_llm.match.programs.matching import match_programs

__all__ = ["match_programs"]
