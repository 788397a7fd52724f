"""Calls of torch.compile in a program that does not know of the capture get its backend."""

from __future__ import annotations

import atexit
import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule

from ait_llm.dump.inject.channel import report
from ait_llm.dump.inject.graph_options import fx_options
from ait_llm.dump.inject.settings import TorchSettings

if TYPE_CHECKING:
    from ait_llm.dump.fx_backend import Backend


def capture_compiled(settings: TorchSettings) -> None:
    """Give every later call of ``torch.compile`` the backend that captures.

    ``module.compile()`` and decorators come by there too. Where graphs are run node by node, the
    backend, mode and options that the program asked for are left out: they are about what is not
    run. Where Inductor's kernels are recorded, calls that want another backend stay as they are.

    Raises:
        UsageError: the output cannot be written.
    """
    from ait_llm.dump import fx_backend, inductor_capture  # programs of modules need neither

    compile_call = torch.compile
    make = inductor_capture.backend_of if settings.is_inductor else fx_backend.backend_of
    backend = _reporting(make(fx_options(settings)))
    reports: list[str] = []

    @functools.wraps(compile_call)
    def compile_and_capture(model: Any = None, **options: Any) -> Any:
        wanted = options.get("backend", "inductor")
        foreign = settings.is_inductor and wanted not in ("inductor", backend)
        if wanted is not backend:
            report("foreign" if foreign else "compile", backend=_name(wanted))
            reports.append(_name(wanted))
        if not options.get("disable") and not foreign:
            options["backend"] = backend
            if not settings.is_inductor:
                options.pop("mode", None)
                options.pop("options", None)
        return compile_call(model, **options)

    torch.compile = compile_and_capture
    atexit.register(lambda: report("end", compile_calls=len(reports), dynamo=_uses_dynamo()))


def _reporting(backend: Backend) -> Backend:
    """The backend, telling the launcher of each graph."""

    def capture(module: GraphModule, inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
        report("graph", nodes=len(module.graph.nodes))
        return backend(module, inputs, **options)

    return capture


def _name(backend: Any) -> str:
    return backend if isinstance(backend, str) else str(getattr(backend, "__name__", "custom"))


def _uses_dynamo() -> bool:
    """True if graphs were made past ``torch.compile``, by ``torch._dynamo.optimize`` perhaps."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"]["ok"])
