"""Bugs in real programs, put in by chance, to hold the search for origins to.

Programs are those of :mod:`matching_truth`. A bug is of one of these natures:

- a *kernel fault*: an operator computes something else than its arguments say (``kernels``). A
  dispatch mode below the capture changes its result;
- a *definition*: a number (``definitions``), weight or buffer (``weights``) is another;
- the *code* calls other functions (``functions``); a function mode above the capture replaces them;
- the caller passes another *input* (``inputs``).

The truth comes from two traces of the same program, with and without the bug, which share nothing
with the tool: operators whose results occur nowhere in the healthy run, although all that they
compute from does (``tracing``). ``trial`` draws bugs and looks for them, ``grading`` holds what was
said against the truth.
"""

from bugs import definitions, functions, inputs, kernels, weights
from bugs.grading import Outcome
from bugs.model import KINDS, Nature
from bugs.trial import Bug, Trial, draw_bug, hunt

__all__ = ["KINDS", "Bug", "Nature", "Outcome", "Trial", "draw_bug", "hunt"]
_REGISTERED = (definitions, functions, inputs, kernels, weights)
