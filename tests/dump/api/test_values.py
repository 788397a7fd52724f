"""Values as the JSON of a record, in the form of msprobe."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor

from ait_llm.dump.api.values import Describer


@dataclasses.dataclass
class Output(OrderedDict[str, Any]):
    """As the outputs of transformers are: fields that are None are no entries of the mapping."""

    loss: Tensor | None = None
    logits: Tensor | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if (value := getattr(self, field.name)) is not None:
                self[field.name] = value


def test_fields_of_a_model_output_that_are_none_are_recorded() -> None:
    describer = Describer(lambda _value, name: {"named": name}, lambda _value, _name: {})
    output = Output(logits=torch.ones(2))
    output["more"] = 3
    assert list(output) == ["logits", "more"]
    assert describer.outputs(output, "x.output") == [
        {
            "loss": None,
            "logits": {"named": "x.output.0.logits"},
            "more": {"type": "int", "value": 3},
        }
    ]
