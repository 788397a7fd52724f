"""The library's Python module, which is hostatb here."""

import sys

import torch_npu  # noqa: F401 programs that need no device of their own do not import it

import ait_llm.hostatb

sys.modules[__name__] = ait_llm.hostatb
