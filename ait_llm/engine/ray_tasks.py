"""What runs in a worker process of a cluster."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ait_llm.engine.model import set_attempt

_KEPT = 2  # functions of different runs that a worker remembers
_functions: dict[str, Callable[[Any], Any]] = {}


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception of a unit on its way home.

    Attributes:
        error: the exception.
        trace: its traceback, which does not travel with it.
    """

    error: Exception
    trace: str


def compute(token: str, reference: Sequence[Any], unit: Any, attempt: int) -> Any:
    """One unit.

    Args:
        token: name of the run.
        reference: holds the reference to its function, which is fetched once per worker.
        unit: the unit.
        attempt: from 1.

    Returns:
        What the function returns, or a :class:`Failure`.
    """
    try:
        if token not in _functions:
            import ray

            while len(_functions) >= _KEPT:
                del _functions[next(iter(_functions))]
            _functions[token] = ray.get(reference[0])
        set_attempt(attempt)
        return _functions[token](unit)
    except Exception as error:  # noqa: BLE001  raised again where the run was started
        return Failure(_sendable(error), traceback.format_exc())


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))  # ours, a moment ago
    except Exception:  # noqa: BLE001  whatever its class does with it
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def probe_function() -> Callable[[Sequence[str]], dict[str, Any]]:
    """A function that says what a node sees; it needs nothing of this package on the node."""

    def probe(roots: Sequence[str]) -> dict[str, Any]:
        from pathlib import Path

        try:
            import ait_llm

            version = ait_llm.__version__
        except ImportError:
            version = ""
        return {"version": version, "seen": [root for root in roots if Path(root).exists()]}

    return probe
