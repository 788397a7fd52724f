"""Where a kernel is written."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from ait_llm.errors import UsageError
from ait_llm.opcheck.kernel_source import source_of


def kernel(x: Any) -> Any:
    return x


class Compiled:
    """As Triton wraps a function, once for each decorator."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def __getitem__(self, grid: Any) -> Any:
        return self.fn


class Callable:
    def __call__(self, x: Any) -> Any:
        return x


LINE = kernel.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (kernel, LINE),
        (functools.partial(kernel, 1), LINE),
        (Compiled(Compiled(kernel)), LINE),
        (functools.wraps(kernel)(lambda x: x), LINE),
        (Callable(), Callable.__call__.__code__.co_firstlineno),
        (Callable().__call__, Callable.__call__.__code__.co_firstlineno),
    ],
)
def test_the_line_of_a_python_function_is_known_however_it_is_wrapped(
    given: Any, line: int
) -> None:
    found = source_of(given)
    assert found is not None
    assert (found.file, found.line) == (str(Path(__file__)), line)


@pytest.mark.parametrize("given", [len, "rms_norm", None, print])
def test_what_is_not_written_in_python_has_no_line(given: Any) -> None:
    assert source_of(given) is None


def test_an_operator_of_torch_has_no_line_of_the_project() -> None:
    torch = pytest.importorskip("torch")
    assert source_of(torch.ops.aten.add) is None


def test_a_line_that_is_told_counts_more() -> None:
    found = source_of(kernel, "csrc/rms_norm.cu:42")
    assert found is not None
    assert (found.file, found.line) == ("csrc/rms_norm.cu", 42)


@pytest.mark.parametrize("told", ["rms_norm.cu", "rms_norm.cu:", ":3", "a.cu:0", "a.cu:x"])
def test_what_is_no_line_is_refused(told: str) -> None:
    with pytest.raises(UsageError, match="is no line; write it like"):
        source_of(kernel, told)
