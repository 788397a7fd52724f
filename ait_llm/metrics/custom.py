"""Metrics that users bring along.

A custom metric is a function of two arguments, golden and mine, that returns a value (a number or
a text) and a message; the message says why there is no number, and is empty otherwise::

    def largest_ratio(golden, mine):
        return float((mine / golden).max()), ""

The arguments are the flattened tensors as 1-D float32 torch tensors. A function whose parameters
are annotated as NumPy arrays (``golden: np.ndarray``) gets NumPy arrays and needs no torch.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ait_llm.core.optional import import_optional
from ait_llm.errors import UsageError
from ait_llm.formats.elements import Array

ENTRY_POINTS = "ait_llm.metrics"


@dataclass(frozen=True, slots=True)
class CustomMetric:
    """A user's metric.

    Attributes:
        name: key of its result.
        source: where it was loaded from, for messages.
        function: the user's function.
        takes_numpy: whether it wants NumPy arrays.
    """

    name: str
    source: str
    function: Callable[..., Any]
    takes_numpy: bool

    def __call__(self, golden: Array, mine: Array) -> tuple[float | str, str]:
        """Value and message for two arrays of any real type and the same shape.

        Raises:
            UsageError: the arrays are complex, or the function returned something else than its
                contract says.
        """
        arguments: list[Any] = [self._argument(side) for side in (golden, mine)]
        result = self.function(*arguments)
        if not (
            isinstance(result, tuple)
            and len(result) == 2
            and isinstance(result[0], float | int | str)
            and isinstance(result[1], str)
        ):
            raise UsageError(
                f"{self.source}: {self.name} returned {_short(result)}; "
                "return a number or text and a message, such as (0.5, '')"
            )
        value, message = result
        return (value if isinstance(value, str) else float(value)), message

    def add(
        self, golden: Array, mine: Array, values: dict[str, float], missing: dict[str, str]
    ) -> None:
        """Put the result for a pair into one of the two; an exception becomes a reason."""
        try:
            value, message = self(golden, mine)
        except Exception as error:  # noqa: BLE001  code of the user; its failure is a result
            missing[self.name] = f"{type(error).__name__}: {error}"
            return
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            values[self.name] = number
        else:
            missing[self.name] = message or f"the metric returned {value!r}"

    def _argument(self, array: Array) -> Any:
        if array.dtype.kind == "c":
            raise UsageError("custom metrics take real tensors")
        flat: NDArray[np.float32] = np.array(array, dtype=np.float32).reshape(-1)
        if self.takes_numpy:
            return flat
        return import_optional("torch", f"custom metric {self.name}").from_numpy(flat)


def load_custom(spec: str) -> CustomMetric:
    """Load ``path.py:function``, or the name of an entry point of group ``ait_llm.metrics``.

    The code is the user's own and runs with the user's rights. It is called once with arrays of
    one element to see that it keeps the contract.

    Raises:
        UsageError: the file, the function or its result is not as it should be; the message says
            which.
    """
    path, _, name = spec.rpartition(":")
    if path:
        function, source = _from_file(Path(path), name, spec), path
    else:
        function, source = _from_entry_point(spec), f"entry point {spec}"
    try:
        signature = inspect.signature(function)
        signature.bind(None, None)
    except (TypeError, ValueError):
        raise UsageError(f"{source}: {name} must take two arguments, golden and mine") from None
    annotations = [str(parameter.annotation) for parameter in signature.parameters.values()]
    takes_numpy = any("ndarray" in text.lower() for text in annotations[:2])
    metric = CustomMetric(name, source, function, takes_numpy)
    one = np.ones(1, np.float32)
    try:
        metric(one, one)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001  code of the user
        raise UsageError(
            f"{source}: {name} fails on two tensors of one element: {type(error).__name__}: {error}"
        ) from None
    return metric


def entry_point_names() -> list[str]:
    """Names of the custom metrics that installed packages offer."""
    return sorted({point.name for point in entry_points(group=ENTRY_POINTS)})


def _from_file(path: Path, name: str, spec: str) -> Callable[..., Any]:
    if path.suffix != ".py" or not name.isidentifier():
        raise UsageError(f"custom metric {spec!r} is not of the form path.py:function")
    if not path.is_file():
        raise UsageError(f"custom metric {spec!r}: there is no file {path}")
    module_spec = importlib.util.spec_from_file_location(f"ait_llm_custom_{path.stem}", path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:  # noqa: BLE001  code of the user
        raise UsageError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from None
    function: Callable[..., Any] | None = getattr(module, name, None)
    if function is None or not callable(function):
        offered = [
            key
            for key, value in vars(module).items()
            if inspect.isfunction(value) and not key.startswith("_")
        ]
        known = f"; it defines {', '.join(sorted(offered))}" if offered else ""
        raise UsageError(f"{path} has no function {name!r}{known}")
    return function


def _from_entry_point(name: str) -> Callable[..., Any]:
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == name:
            try:
                function: Callable[..., Any] = point.load()
            except Exception as error:  # noqa: BLE001  code of another package
                raise UsageError(
                    f"entry point {name} ({point.value}) cannot be loaded: "
                    f"{type(error).__name__}: {error}"
                ) from None
            if callable(function):
                return function
            raise UsageError(f"entry point {name} ({point.value}) is not a function")
    known = entry_point_names()
    offered = f"installed packages offer {', '.join(known)}" if known else "none is installed"
    raise UsageError(
        f"custom metric {name!r} is neither path.py:function nor an entry point of "
        f"{ENTRY_POINTS}; {offered}"
    )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
