"""A backend for torch.compile that runs the graph operator by operator and saves every node.

    import torch
    from ait_llm.dump import fx_backend

    model = torch.compile(model, backend=fx_backend.capture("golden"))

Nothing is fused and nothing is lowered: each node of the AOT graph runs as its eager operator, so
the results are those of ``backend="aot_eager"``, bit for bit. The files are those of torchair's FX
dump, and ``ait llm show`` and ``ait llm compare`` read them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.fx import GraphModule

from ait_llm.core import StepRange
from ait_llm.dump.fx.options import EVERY_STEP, FxOptions
from ait_llm.dump.fx.session import FxSession, sessions
from ait_llm.errors import UsageError

Backend = Callable[..., Callable[..., Any]]
Decompositions = Mapping[Any, Callable[..., Any]]


def capture(
    dump_path: str | os.PathLike[str] = "./",
    *,
    steps: Sequence[int] | str | None = None,
    nodes: Sequence[str] | str = (),
    targets: Sequence[str] | str = (),
    tensor_part: int = 2,
    decompositions: Decompositions | str | None = None,
) -> Backend:
    """A backend for ``torch.compile`` that captures.

    Args:
        dump_path: folder in which ``ait_dump/fx_tensors/worldsize{W}_global_rank{R}/graph_{N}``
            is made. Captures of one process with the same folder share it.
        steps: executions of each graph to record, from 0: a list, or intervals as in ``"0,0,3,5"``.
            None for all.
        nodes: globs on the names of nodes, such as ``"mul_*"``; empty for all.
        targets: globs on their targets, such as ``"aten.mm.*"``; empty for all.
        tensor_part: 0 inputs, 1 outputs, 2 both.
        decompositions: operators to take apart, as ``aot_autograd`` takes them; ``"inductor"`` for
            the table of Inductor, so that the nodes are those that Inductor fuses. None for none,
            as torchair has it.

    Raises:
        UsageError: an argument of the wrong type or out of range, or an output that cannot be
            written, or that a capture of this process with other settings writes to.

    Example:
        >>> import torch
        >>> from ait_llm.dump import fx_backend
        >>> compiled = torch.compile(model, backend=fx_backend.capture("out"))  # doctest: +SKIP
    """
    if not isinstance(dump_path, (str, os.PathLike)):
        raise UsageError(f"dump_path {dump_path!r} is not a path")
    if type(tensor_part) is not int or tensor_part not in (0, 1, 2):
        raise UsageError(f"tensor_part {tensor_part!r} is not 0 (inputs), 1 (outputs) or 2 (both)")
    options = FxOptions(
        output=Path(os.path.abspath(Path(dump_path).expanduser())),  # noqa: PTH100
        steps=steps_of(steps),
        nodes=_globs("nodes", nodes),
        targets=_globs("targets", targets),
        inputs=tensor_part in (0, 2),
        outputs=tensor_part in (1, 2),
    )
    return backend_of(options, decompositions)


def seal() -> None:
    """Say that what this process captured so far is whole, as its end would say.

    A dump of a process that goes on is incomplete for ``show`` and ``compare``. In notebooks the
    end of each cell does this; elsewhere call it between two runs of the model. What is captured
    later belongs to the dump, too, and needs another call.

    Example:
        >>> from ait_llm.dump import fx_backend
        >>> fx_backend.seal()
    """
    sessions.rest()


def backend_of(options: FxOptions, decompositions: Decompositions | str | None = None) -> Backend:
    """The backend for settings that were checked.

    Raises:
        UsageError: as :func:`capture`.
    """
    if isinstance(decompositions, str) and decompositions != "inductor":
        raise UsageError(f"decompositions {decompositions!r} is neither a table nor 'inductor'")
    session = sessions.get(options)

    def backend(module: GraphModule, example_inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        return _compile(module, example_inputs, session, decompositions)

    return backend


def _compile(
    module: GraphModule,
    example_inputs: Sequence[Any],
    session: FxSession,
    decompositions: Decompositions | str | None,
) -> Callable[..., Any]:
    # torch._dynamo takes seconds to import; who compiles has done it already.
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    from ait_llm.dump.fx.graph_capture import GraphCapture

    if decompositions == "inductor":
        from torch._inductor.decomposition import select_decomp_table

        decompositions = select_decomp_table()

    def compiler(phase: str) -> Callable[..., GraphCapture]:
        return lambda graph, _inputs: GraphCapture(graph, session, phase)

    # The settings of aot_eager, whose results these are.
    whole: Callable[..., Any] = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
        decompositions=decompositions,
    )
    compiled: Callable[..., Any] = whole(module, example_inputs)
    return compiled


def steps_of(steps: Sequence[int] | str | None) -> StepRange:
    """Executions of a graph as a caller may give them.

    Raises:
        UsageError: they are no list of numbers and no intervals.
    """
    if steps is None:
        return EVERY_STEP
    if isinstance(steps, str):
        return StepRange.parse(steps)
    if isinstance(steps, Sequence) and all(type(step) is int and step >= 0 for step in steps):
        wanted = sorted({int(step) for step in steps})
        return StepRange(tuple((step, step) for step in wanted))
    raise UsageError(f"steps {steps!r} is not a list of executions such as [0, 1]")


def _globs(name: str, patterns: Sequence[str] | str) -> tuple[str, ...]:
    found = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    if not all(isinstance(pattern, str) and pattern for pattern in found):
        raise UsageError(f"{name} {patterns!r} is not a list of patterns such as ['mul_*']")
    return found
