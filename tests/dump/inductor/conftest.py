"""Programs compiled with Inductor, each kernel once for all tests."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ait_llm.dump import fx_backend, inductor_capture
from ait_llm.dump.fx.session import sessions
from ait_llm.dumps import FxDump, open_dump
from tests.support.compiled_models import Llama

Inputs = tuple[Tensor, ...]


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled kernels that the tests share and nobody else has."""
    return tmp_path_factory.mktemp("inductor")


@pytest.fixture(scope="module", autouse=True)
def kernels(kernel_cache: Path) -> Iterator[None]:
    """Inductor with that cache, while tests of this folder run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch imports what it deprecates
        import torch._inductor.compile_fx
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(kernel_cache))
        patch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
        yield
        torch._dynamo.reset()


def sealed(folder: Path) -> FxDump:
    """The dump of a capture that has ended."""
    session = sessions._open.pop(folder, None)
    if session is not None:
        session.close("exit")
    dump = open_dump(folder)
    assert isinstance(dump, FxDump)
    return dump


def run(
    make: Callable[[], nn.Module],
    inputs: Inputs,
    backend: Any = "inductor",
    *,
    calls: int = 1,
    grad: bool = False,
    **options: Any,
) -> Any:
    """What a compiled model returns for its last call; its weights are the same each time."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    compiled = torch.compile(make(), backend=backend, **options)
    with torch.set_grad_enabled(grad):
        for _ in range(calls):
            result = compiled(*inputs)
    torch._dynamo.reset()
    return result


def capture(make: Callable[[], nn.Module], inputs: Inputs, folder: Path, **options: Any) -> Any:
    """The same with a capture of Inductor in ``folder``, which is sealed."""
    result = run(make, inputs, inductor_capture.capture(folder), **options)
    sealed(folder)
    return result


def capture_golden(
    make: Callable[[], nn.Module], inputs: Inputs, folder: Path, **options: Any
) -> Any:
    """The same with a capture operator by operator."""
    result = run(make, inputs, fx_backend.capture(folder), **options)
    sealed(folder)
    return result


@dataclass(frozen=True)
class Captured:
    """The decoder, eager and compiled.

    Attributes:
        golden, mine: folders of the captures.
        plain: what it returns with plain Inductor.
        returned: what it returned to the capture.
        programs: the code that Inductor generated, plain and for the capture.
    """

    golden: Path
    mine: Path
    plain: Tensor
    returned: Tensor
    programs: tuple[str, str]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """Captured once, and left alone."""
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    folder = tmp_path_factory.mktemp("llama")
    inputs = (torch.arange(5),)
    programs: list[str] = []
    with pytest.MonkeyPatch.context() as patch, config.patch(fx_graph_cache=False):
        patch.setattr(GraphLowering, "save_output_code", programs.append)
        plain = run(Llama, inputs)
        returned = capture(Llama, inputs, folder / "mine")
    capture_golden(Llama, inputs, folder / "golden")
    assert len(programs) == 2
    return Captured(folder / "golden", folder / "mine", plain, returned, (programs[0], programs[1]))
