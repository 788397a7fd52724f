"""A pytest plugin: the fixture ``opcheck`` gates a kernel in a test of its own project.

``--opcheck-report DIR`` writes what all tests of a session checked: a summary in Markdown, JUnit
XML, SARIF, and annotations as GitHub reads them from the output of a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ait_llm.opcheck.kernels import CheckedKernel
    from ait_llm.opcheck.session import Session
    from ait_llm.opcheck.sweeps.report import SweepReport

_SESSION: pytest.StashKey[Session] = pytest.StashKey()
_WORKERS = "opcheck"  # what workers of pytest-xdist hand over


class Opcheck:
    """What the fixture ``opcheck`` is: a check that fails the test, and a sweep that does.

    Args:
        request: of the test.
    """

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request

    def __call__(self, *args: Any, **settings: Any) -> CheckedKernel:
        """Fail unless a kernel passes; takes the arguments of :func:`ait_llm.opcheck.check`.

        What could not be checked fails too.
        """
        __tracebackhide__ = True
        from ait_llm.opcheck.kernels import check

        found = check(*args, **settings)
        self._session.add_check(*self._place, found)
        if not found:
            pytest.fail(f"opcheck:\n{found}", pytrace=False)
        return found

    def sweep(self, *args: Any, **settings: Any) -> SweepReport:
        """Fail unless a kernel passes; takes the arguments of :func:`ait_llm.opcheck.sweep`."""
        __tracebackhide__ = True
        from ait_llm.opcheck.sweeps.runner import sweep

        found = sweep(*args, **settings)
        self._session.add_sweep(*self._place, found)
        if not found:
            pytest.fail(f"opcheck:\n{found}", pytrace=False)
        return found

    @property
    def _session(self) -> Session:
        return self._request.config.stash[_SESSION]

    @property
    def _place(self) -> tuple[str, str, int]:
        file, line, _ = self._request.node.location
        return self._request.node.nodeid, str(file), int(line or 0) + 1


@pytest.fixture
def opcheck(request: pytest.FixtureRequest) -> Opcheck:
    """``opcheck(op, inputs, params, ...)`` fails the test unless the kernel passes.

    It takes the arguments of :func:`ait_llm.opcheck.check`; ``opcheck.sweep`` those of
    :func:`ait_llm.opcheck.sweep`. What could not be checked fails too.
    """
    return Opcheck(request)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("opcheck", "kernels against golden")
    group.addoption(
        "--opcheck-report",
        metavar="DIR",
        help="write opcheck.md, opcheck.junit.xml, opcheck.sarif and opcheck.annotations of all "
        "checks into DIR",
    )


def pytest_configure(config: pytest.Config) -> None:
    from ait_llm.opcheck.session import Session

    config.stash[_SESSION] = Session()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker of pytest-xdist is done."""
    handed = getattr(node, "workeroutput", {}).get(_WORKERS, ())
    node.config.stash[_SESSION].take_over(handed)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    yield
    config = session.config
    own = config.stash[_SESSION]
    handed = getattr(config, "workeroutput", None)
    if handed is not None:
        handed[_WORKERS] = own.handed_over()
    elif folder := config.getoption("--opcheck-report"):
        own.write(folder)
