"""Tensor files from one format to another."""

from ait_llm.convert.files import convert_files
from ait_llm.convert.one_file import Converted

__all__ = ["Converted", "convert_files"]
