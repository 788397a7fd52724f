"""What kind of bug a guilty operation has: its residual tested against signatures.

The *residual* is what an operation produced minus what its own inputs demand. Each module offers
hypotheses of one sort; :mod:`~ait_llm.diagnosis.residual` measures how well one explains the
residual, and :func:`diagnose` names the best, or says that it does not know.
"""

from __future__ import annotations

from ait_llm.diagnosis.call import Call
from ait_llm.diagnosis.diagnose import diagnose, diagnose_arrays
from ait_llm.diagnosis.kinds import Diagnosis, Kind
from ait_llm.diagnosis.residual import Residual

__all__ = ["Call", "Diagnosis", "Kind", "Residual", "diagnose", "diagnose_arrays"]
