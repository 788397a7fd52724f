"""A pytest plugin: the fixture ``opcheck`` gates a kernel in a test of its own project."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ait_llm.opcheck.kernels import CheckedKernel


@pytest.fixture
def opcheck() -> Callable[..., CheckedKernel]:
    """``opcheck(op, inputs, params, ...)`` fails the test unless the kernel passes.

    It takes the arguments of :func:`ait_llm.opcheck.check`. What could not be checked fails too.
    """
    from ait_llm.opcheck.kernels import check

    def require(*args: Any, **settings: Any) -> CheckedKernel:
        __tracebackhide__ = True
        found = check(*args, **settings)
        if not found:
            pytest.fail(f"opcheck:\n{found}", pytrace=False)
        return found

    return require
