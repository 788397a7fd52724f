"""Every aten operator as its own definition: computed again on the CPU in float64.

Read :mod:`~ait_llm.opcheck.golden.aten.operators` first, then :mod:`~.calls` (how recorded
arguments become a call), :mod:`~.kinds` (what is known of operators that is not in their schema),
:mod:`~.arithmetic` (where correct kernels round), :mod:`~.choices` (other right results) and
:mod:`~.graph` (what several operators make together). Nothing here knows what a dump is.
"""

from ait_llm.opcheck.golden.aten.calls import TENSORS
from ait_llm.opcheck.golden.aten.choices import is_other_order
from ait_llm.opcheck.golden.aten.graph import NodeCall, NodeGraph
from ait_llm.opcheck.golden.aten.kinds import BY_STRIDES, has_statistics, why_unchecked
from ait_llm.opcheck.golden.aten.operators import aten_operator

__all__ = [
    "BY_STRIDES",
    "TENSORS",
    "NodeCall",
    "NodeGraph",
    "aten_operator",
    "has_statistics",
    "is_other_order",
    "why_unchecked",
]
