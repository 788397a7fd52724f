"""One operation that went wrong, and how to compute it with something changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ait_llm.diagnosis.residual import Array
from ait_llm.errors import AitError
from ait_llm.opcheck.cases import REFUSALS

if TYPE_CHECKING:
    from torch import Tensor

    from ait_llm.opcheck.golden import Arithmetic, GoldenOp, Result


@dataclass(frozen=True, eq=False)
class Call:
    """An operator with its inputs and what it made of them.

    Attributes:
        golden: what it should compute.
        inputs: its input tensors, None for an absent one.
        params: its parameters.
        outputs: what it produced, by index.
        compute_with: computes a result of other inputs and parameters; the golden operator unless
            given. A collective needs its other ranks.
    """

    golden: GoldenOp
    inputs: Sequence[Tensor | None]
    params: Mapping[str, Any]
    outputs: Mapping[int, Tensor]
    compute_with: Callable[..., Result] | None = None
    changed: Mapping[int, Tensor] = field(default_factory=dict)

    def result(self, arithmetic: Arithmetic) -> Result:
        """What the golden operator makes of the call.

        Raises:
            AitError: the golden operator refuses it; also one of ``opcheck.cases.REFUSALS``.
        """
        import torch

        given = list(self.inputs)
        for index, tensor in self.changed.items():
            given[index] = tensor
        compute = self.compute_with or self.golden.compute
        with torch.no_grad():
            return compute(given, self.params, arithmetic)

    def predicted(self, output: int, arithmetic: Arithmetic | None = None) -> Array | None:
        """One output in float64, unrounded; None where the operator refuses the call."""
        from ait_llm.opcheck.golden import Arithmetic

        try:
            outputs = self.result(arithmetic or Arithmetic(round_output=False)).outputs
        except (AitError, *REFUSALS):
            return None
        if output >= len(outputs):
            return None
        values = outputs[output].detach().double().numpy()
        mine = self.outputs[output]
        if values.size != mine.numel():
            return None
        return np.asarray(values.reshape(tuple(mine.shape)), np.float64)

    def with_params(self, params: Mapping[str, Any]) -> Call:
        """The same with other parameters."""
        return replace(self, params=params)

    def with_input(self, index: int, tensor: Tensor) -> Call:
        """The same with another input."""
        return replace(self, changed={**self.changed, index: tensor})

    def tensors(self) -> Iterator[tuple[int, Tensor]]:
        """The inputs that are there, with their indices."""
        for index, tensor in enumerate(self.inputs):
            if tensor is not None and tensor.numel():
                yield index, tensor

    def numbers(self, *names: str) -> list[int]:
        """Whole numbers among the parameters, by name, those above 1; each once."""
        found = (self.params.get(name) for name in names)
        return list(dict.fromkeys(each for each in found if isinstance(each, int) and each > 1))
