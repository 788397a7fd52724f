"""What came of a check: values that the tables and the command print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ait_llm.apicheck.metrics import Metrics
from ait_llm.faults import EXIT_CODE
from ait_llm.opcheck.api.unchecked import LEFT_OUT

Status = Literal["pass", "warning", "error", "SKIP", " "]
"""As the tables have it; a blank where there was nothing to do, such as a call without backward."""

PASS: Status = "pass"
WARNING: Status = "warning"
ERROR: Status = "error"
SKIP: Status = "SKIP"
BLANK: Status = " "


@dataclass(frozen=True, slots=True)
class OutputResult:
    """One output, or one gradient of an input.

    Attributes:
        place: ``0``, ``1.0`` for what lies in a container.
        golden_dtype, device_dtype: ``torch.float32``; a Python type for what is no tensor.
        shape: of the device's output; None for what is no tensor.
        status: its verdict.
        message: why.
        metrics: None where nothing was measured.
    """

    place: str
    golden_dtype: str
    device_dtype: str
    shape: tuple[int, ...] | None
    status: Status
    message: str = ""
    metrics: Metrics | None = None


_BACKWARD = "backward: "
"""Begins the message about what the check leaves out by definition."""


@dataclass(frozen=True, slots=True)
class ApiResult:
    """One call.

    Attributes:
        name: ``Functional.linear.0``.
        forward, backward: the worst of its outputs and gradients; :data:`BLANK` without backward.
        message: why, in one line; empty where there is nothing to say.
        outputs, gradients: what was compared; empty if taken over from an earlier table.
        fault: traceback of the exception, a fault of ait, that kept it from being checked.
    """

    name: str
    forward: Status
    backward: Status = BLANK
    message: str = ""
    outputs: tuple[OutputResult, ...] = ()
    gradients: tuple[OutputResult, ...] = ()
    fault: str = ""

    @property
    def is_missing(self) -> bool:
        """True if something of it could not be checked, and not by definition."""
        parts = self.message.split(_BACKWARD)
        forward_missing = self.forward == SKIP and not parts[0].startswith(LEFT_OUT)
        backward = parts[1] if len(parts) > 1 else ""
        return forward_missing or (self.backward == SKIP and not backward.startswith(LEFT_OUT))

    @property
    def worst(self) -> Status:
        """The worse of both directions."""
        return worst((self.forward, self.backward))


@dataclass(frozen=True, slots=True)
class Checked:
    """One ``dump.json``.

    Attributes:
        path: the file.
        files: its tables.
        results: in the order of the dump; those of an earlier, interrupted check first.
        taken_over: how many are of that earlier check.
        filtered: repeated calls that were left out on request.
        problems: what is wrong with the dump as a whole.
    """

    path: Path
    files: tuple[Path, ...]
    results: tuple[ApiResult, ...]
    taken_over: int = 0
    filtered: int = 0
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """All files of a check.

    Attributes:
        device: on which the calls were run again.
        standard: how they were judged.
        checked: by rank, then step.
        stopped: the user ended it before everything was checked.
        error_data: folder with the tensors of calls that did not pass; None if there is none.
    """

    device: str
    standard: str
    checked: tuple[Checked, ...]
    stopped: bool = False
    error_data: Path | None = None

    @property
    def results(self) -> Iterator[ApiResult]:
        """Those of all files."""
        for each in self.checked:
            yield from each.results

    @property
    def counts(self) -> Counter[str]:
        """Calls by the worse of both directions."""
        return Counter(result.worst for result in self.results)

    @property
    def faults(self) -> Mapping[str, str]:
        """Tracebacks of faults of ait itself, by what was said of each."""
        return {each.message: each.fault for each in self.results if each.fault}

    def exit_code(self, *, allow_skip: bool = False) -> int:
        """0: all well; 1: an API errs; 3: something could not be checked; 4: a fault of ait."""
        if self.faults:
            return EXIT_CODE
        if any(result.worst == ERROR for result in self.results):
            return 1
        if self.stopped:
            return 3
        missing = any(each.problems for each in self.checked)
        missing = missing or any(result.is_missing for result in self.results)
        return 3 if missing and not allow_skip else 0


def joined(forward: str, backward: str) -> str:
    """The message of a call from those of both directions."""
    return "; ".join(
        part for part in (forward, f"{_BACKWARD}{backward}" if backward else "") if part
    )


_ORDER: tuple[Status, ...] = (ERROR, WARNING, SKIP, PASS, BLANK)


def worst(statuses: Sequence[Status]) -> Status:
    """The worst of some statuses; a blank of none."""
    return next((status for status in _ORDER if status in statuses), BLANK)
