"""Real programs in pairs, every captured value labelled, to hold the matcher to.

What is right is decided without the matcher, without names and without the structure of either
program. Each program runs a second time in float64, with the same weights and inputs, under the
same capture; so each tensor of the dump that the matcher sees has a twin whose numbers are good to
nine digits. All inputs and weights are random, so a number occurs in two places only if it is the
same value:

- Two tensors hold *one value in some form* if the numbers of one are all among the numbers of the
  other (``contents``). That covers slices, rows, transposes, permutations, padding and joins alike,
  and needs to know of none of them. Masks, positions and other tensors of few different numbers
  carry no label and are not counted as held.
- A pair that the matcher made is *right* if the twins of the two, after the views that the matcher
  itself gave, have equal numbers at equal places, and *wrong* otherwise (``scoring``).
- *Missed* is a tensor that has a counterpart by the first rule and is in no right pair.

The matcher never sees the twins, and nothing here imports from it but its entry point and the
carrying out of views. Recordings of engines have no float64; their twins are runs in float32 and
their tolerance is wider (``recordings``).
"""

from matching_truth.pairs import PAIRS, Pair, floor_of, score
from matching_truth.scoring import Score

__all__ = ["PAIRS", "Pair", "Score", "floor_of", "score"]
