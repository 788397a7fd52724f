"""Runs of healthy programs in pairs, on which nobody would accept an alarm.

Nothing is wrong with any of them: the two programs of a pair compute one model with one set of
weights, differently as far as the libraries, the data type or the compiler do it differently. So a
FAIL, an accused operator or an exit code other than 0 is the fault of what judges them.

Most are the pairs of ``matching_truth``; the others are in the modules here. Some need packages
that the tests do without, and are there where those can be imported.
"""

from healthy_runs.model import Alone, Healthy, Outcome, judge
from healthy_runs.pairs import PAIRS

__all__ = ["PAIRS", "Alone", "Healthy", "Outcome", "judge"]
