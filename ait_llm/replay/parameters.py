"""Parameters of golden operators: as dumped, and those that the library never prints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ait_llm.errors import AitError
from ait_llm.opcheck.cases import REFUSALS, evaluate, inputs_of, outputs_of
from ait_llm.replay.program import Unit

if TYPE_CHECKING:
    import torch

    from ait_llm.opcheck.golden import GoldenOp


class Parameters:
    """Remembers which of several possible parameters an operator was dumped with."""

    def __init__(self) -> None:
        self._chosen: dict[tuple[str, str], Mapping[str, Any]] = {}

    def of(
        self, unit: Unit, golden: GoldenOp, inputs: Sequence[torch.Tensor | None]
    ) -> Mapping[str, Any]:
        """The parameters to compute a unit with.

        Args:
            unit: the operator.
            golden: its golden operator.
            inputs: what it gets.

        Raises:
            AitError: what is known does not determine them, or a file is damaged.
        """
        operation = unit.operation
        printed = (dict(operation.params) if operation is not None else {}) or dict(unit.params)
        outputs: list[torch.Tensor | None] = []
        if operation is not None and all(tensor.has_data for tensor in operation.outputs):
            found = outputs_of(operation) if golden.recovers or golden.alternatives(printed) else {}
            outputs = [found.get(index) for index in range(max(found, default=-1) + 1)]
        known = golden.recover(inputs, outputs, printed)
        others = golden.alternatives(known)
        if not others or not outputs:
            return known
        key = (str(unit.op_id), json.dumps(dict(known), sort_keys=True, default=str))
        if key not in self._chosen:
            self._chosen[key] = self._closest(unit, golden, [known, *others])
        return self._chosen[key]

    def _closest(
        self, unit: Unit, golden: GoldenOp, choices: Sequence[Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """The parameters that come closest to the dumped outputs from the dumped inputs."""
        assert unit.operation is not None
        try:
            inputs, dumped = inputs_of(unit.operation), outputs_of(unit.operation)
        except AitError:
            return choices[0]
        errors = []
        for params in choices:
            try:
                outputs = evaluate(golden, inputs, params).outputs
                errors.append(
                    sum(
                        float((golden_one.double() - dumped[i].reshape(golden_one.shape)).norm())
                        for i, golden_one in enumerate(outputs)
                        if i in dumped
                    )
                )
            except (AitError, *REFUSALS):
                errors.append(float("inf"))
        return choices[errors.index(min(errors))]
