"""The use case *plan*: what a capture would write, before it is run, and what fits a budget."""

from __future__ import annotations

from ait_llm.plan.amounts import Amount, Estimate
from ait_llm.plan.disk import Disk, look_at_disk
from ait_llm.plan.meta_program import MetaRequest
from ait_llm.plan.model_config import read_model_config
from ait_llm.plan.pipeline import Plan, make_plan
from ait_llm.plan.proposals import Proposal
from ait_llm.plan.survey import Surveyed, survey_atb, survey_model, survey_torch

__all__ = [
    "Amount",
    "Disk",
    "Estimate",
    "MetaRequest",
    "Plan",
    "Proposal",
    "Surveyed",
    "look_at_disk",
    "make_plan",
    "read_model_config",
    "survey_atb",
    "survey_model",
    "survey_torch",
]
