"""Operators that are presented by a table: names, what they overwrite, one kernel.

Tensor names are those of the library's operator table. What one execution launches was never
recorded for these operators: they launch one kernel, ``<Operation>Kernel``, that reports the
operator's own name and parameters.
"""

from __future__ import annotations

from collections.abc import Callable

from ait_llm.hostatb.operators.launch import Descs, Param, single_kernel
from ait_llm.hostatb.params.base import param_types
from ait_llm.hostatb.spec import OperatorSpec, Plan, operator_specs

Names = tuple[tuple[str, ...], tuple[str, ...]]


def one_kernel(name: str) -> Callable[[Param, Descs, Descs], Plan]:
    """The plan of an operator whose kernel is not recorded."""

    def plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
        kernel = f"{name.removesuffix('Operation')}Kernel"
        return single_kernel(kernel, name, param, name, param, inputs, outputs)

    return plan


def listed(inputs: str, outputs: str) -> Callable[[Param], Names]:
    """Names that do not depend on the parameters, separated by spaces."""
    names = tuple(inputs.split()), tuple(outputs.split())
    return lambda _: names


def add(
    name: str,
    names: Callable[[Param], Names],
    *,
    aliases: Callable[[Param], tuple[int | None, ...]] = lambda _: (),
    updated: tuple[int, ...] = (),
) -> None:
    """Register an operator.

    Args:
        name: operation type.
        names: input and output names for given parameters.
        aliases: input whose memory each output is, see :class:`OperatorSpec`.
        updated: inputs that are overwritten although they are no outputs.
    """
    spec = OperatorSpec(
        name,
        names,
        one_kernel(name),
        has_param_json=param_types.get(f"{name.removesuffix('Operation')}Param").prints_json,
        output_aliases=aliases,
        updated_inputs=lambda _: updated,
    )
    operator_specs.register(name)(spec)
