"""Tensor files from one format to another."""

from ait_llm.convert.files import Converted, convert_files

__all__ = ["Converted", "convert_files"]
