"""A backend for torch.compile that compiles with Inductor and saves what the kernels store.

    import torch
    from ait_llm.dump import inductor_capture

    model = torch.compile(model, backend=inductor_capture.capture("mine"))

The program runs with its fused kernels: calls between them save the buffers that they store, and
nothing else is changed. Compare it with a dump of ``fx_backend``, which runs the same graph
operator by operator.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.fx import GraphModule

from ait_llm.core.notices import notice
from ait_llm.dump.fx.options import FxOptions
from ait_llm.dump.fx.session import sessions
from ait_llm.dump.fx_backend import seal, steps_of
from ait_llm.dump.inject.channel import report
from ait_llm.errors import UsageError

__all__ = ["backend_of", "capture", "seal"]

Backend = Callable[..., Callable[..., Any]]


def capture(
    dump_path: str | os.PathLike[str] = "./",
    *,
    steps: Sequence[int] | str | None = None,
    tensor_part: int = 2,
    weights: bool = False,
) -> Backend:
    """A backend for ``torch.compile`` that compiles with Inductor and captures.

    Args:
        dump_path: folder in which ``ait_dump/fx_tensors/worldsize{W}_global_rank{R}/graph_{N}``
            is made. It must not be the folder of the golden capture.
        steps: executions of each graph to record, from 0: a list, or intervals as in ``"0,0,3,5"``.
            None for all.
        tensor_part: 0 what kernels read, 1 what they store, 2 both.
        weights: also save the parameters that kernels read, each once; ``ait llm opcheck`` needs
            them to compute kernels again.

    Raises:
        UsageError: an argument of the wrong type or out of range, an output that cannot be
            written, or a version of torch whose Inductor cannot be watched.

    Example:
        >>> import torch
        >>> from ait_llm.dump import inductor_capture
        >>> compiled = torch.compile(model, backend=inductor_capture.capture("mine"))
        ... # doctest: +SKIP
    """
    if not isinstance(dump_path, (str, os.PathLike)):
        raise UsageError(f"dump_path {dump_path!r} is not a path")
    if type(tensor_part) is not int or tensor_part not in (0, 1, 2):
        raise UsageError(f"tensor_part {tensor_part!r} is not 0 (inputs), 1 (outputs) or 2 (both)")
    return backend_of(
        FxOptions(
            output=Path(os.path.abspath(Path(dump_path).expanduser())),  # noqa: PTH100
            steps=steps_of(steps),
            inputs=tensor_part in (0, 2),
            outputs=tensor_part in (1, 2),
            weights=bool(weights),
        )
    )


def backend_of(options: FxOptions) -> Backend:
    """The backend for settings that were checked.

    Raises:
        UsageError: as :func:`capture`.
    """
    session = sessions.get(options)

    def backend(
        module: GraphModule,
        example_inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
        config_patches: Mapping[str, Any] | None = None,
    ) -> Callable[..., Any]:
        # torch._inductor takes seconds to import; who compiles needs it anyway.
        from torch import _inductor
        from torch._inductor.compile_fx import compile_fx

        from ait_llm.dump.inductor.backend import check_torch, compile_watched

        patches: dict[str, Any] = {}
        if mode is not None and mode != "default":
            patches |= _inductor.list_mode_options(mode)
        patches |= {name.replace("-", "_"): each for name, each in (options or {}).items()}
        patches |= config_patches or {}
        try:
            check_torch()
        except UsageError as error:  # the program must run as without us
            notice(f"nothing is captured: {error}")
            session.note(str(error))
            report("refused", reason=str(error))
            plain: Any = compile_fx
            compiled: Callable[..., Any] = plain(module, example_inputs, config_patches=patches)
            return compiled
        return compile_watched(module, example_inputs, session, patches)

    return backend
