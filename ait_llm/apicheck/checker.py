"""One call: run twice, compared, judged."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ait_llm.apicheck.calls import Call
from ait_llm.apicheck.contract import ByContract, judge_call
from ait_llm.apicheck.error_data import save_error_data
from ait_llm.apicheck.inputs import SEED, TensorSource
from ait_llm.apicheck.judging import Judge
from ait_llm.apicheck.outcome import (
    BLANK,
    PASS,
    SKIP,
    ApiResult,
    OutputResult,
    Status,
    joined,
    worst,
)
from ait_llm.apicheck.sides import Run, Side, in_one_line, run_call
from ait_llm.apicheck.sizes import check_size
from ait_llm.apicheck.standards import CONTRACT
from ait_llm.dumps.api_values import ApiValue
from ait_llm.errors import AitError, FormatError
from ait_llm.faults import told, trace_of
from ait_llm.opcheck.api.arguments import arguments_of, gradients_of
from ait_llm.opcheck.api.functions import Functions, drops, is_conversion
from ait_llm.opcheck.api.unchecked import LEFT_OUT, UncheckableError

if TYPE_CHECKING:
    from pathlib import Path


_CONVERSION = "type conversion: of limited value, golden itself changes its precision"
_NO_BACKWARD = ("repeat_interleave", "masked_select")
# The state of random numbers belongs to all threads.
_random = threading.Lock()


@dataclass(frozen=True, slots=True)
class Selection:
    """Which functions the user wants.

    Attributes:
        white: only these if there are any; ``add`` or ``Torch.add``.
        black: not these.
    """

    white: frozenset[str] = frozenset()
    black: frozenset[str] = frozenset()

    def check(self, call: Call) -> None:
        """Raise UncheckableError if a call is not wanted."""
        names = {call.forward.api_name, call.forward.type}
        if self.black & names:
            raise UncheckableError("it is in the black list", by_rule=True)
        if self.white and not self.white & names:
            raise UncheckableError("it is not in the white list", by_rule=True)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call with what its records say, or the reason why it is not checked."""

    call: Call
    functions: Sequence[Callable[..., Any]] = ()
    forward: Sequence[ApiValue] = ()
    backward: Sequence[ApiValue] | None = None
    problem: str = ""


class Checker:
    """Checks calls on one device; calls may be checked in several threads.

    Args:
        functions: that may be called.
        selection: which are wanted.
        judge: of outputs.
        golden: the trusted side.
        benchmark: the CPU in the recorded precision, where the standard needs it.
        error_data: folder for inputs and outputs of calls that do not pass.
    """

    def __init__(
        self,
        functions: Functions,
        selection: Selection,
        judge: Judge,
        golden: Side,
        benchmark: Side | None = None,
        error_data: Path | None = None,
    ) -> None:
        self._functions = functions
        self._selection = selection
        self._judge = judge
        self._golden = golden
        self._benchmark = benchmark
        self._error_data = error_data

    def prepare(self, call: Call) -> Prepared:
        """Read the records of a call; for one thread only, in the order of the file."""
        try:
            self._selection.check(call)
            functions = self._functions.find(call.forward.parsed)
            backward = call.backward.values if call.backward is not None else None
            return Prepared(call, functions, call.forward.values, backward)
        except UncheckableError as error:
            return Prepared(call, problem=error.reason)
        except FormatError as error:
            return Prepared(call, problem=in_one_line(error))

    def check(self, prepared: Prepared, device: Side) -> ApiResult:
        """Run a call on both sides and judge what came out."""
        name = prepared.call.name
        if not prepared.functions:
            return ApiResult(name, SKIP, message=prepared.problem)
        try:
            return self._checked(prepared, device)
        except UncheckableError as error:
            return ApiResult(name, SKIP, message=error.reason)
        except (AitError, OSError, RuntimeError, ValueError, MemoryError) as error:
            return ApiResult(name, SKIP, message=in_one_line(error))
        except Exception as error:  # noqa: BLE001  it costs this call, not the others
            return ApiResult(name, SKIP, message=told(error), fault=trace_of(error))

    def _checked(self, prepared: Prepared, device: Side) -> ApiResult:
        call = prepared.call
        api = call.forward.type
        source = TensorSource(call.root)
        args, kwargs = arguments_of(api, prepared.forward, source)
        dropped = drops(api, args, kwargs)
        gradients, left_out = None, ""
        if prepared.backward is not None:
            left_out = _no_backward(api, kwargs)
            gradients = None if left_out else gradients_of(prepared.backward, source)

        def run(where: str, side: Side, function: Callable[..., Any]) -> Run:
            try:
                with _same_random_numbers(dropped):
                    return run_call(function, api, args, kwargs, side, gradients)
            except Exception as error:  # kernels raise what they like; it goes to the table
                raise UncheckableError(f"{where} fails: {in_one_line(error)}") from error

        def golden_run(function: Callable[..., Any]) -> Run:
            check_size(function, api, args, kwargs, stored)
            return run("the golden run", self._golden, function)

        stored = _stored_bytes(prepared.forward)
        function, golden = _first_that_runs(prepared.functions, golden_run)
        mine = run(f"the run on {device.device}", device, function)
        peer = Run(None)
        if self._benchmark is not None and not dropped:
            peer = run("the benchmark's run", self._benchmark, function)
        by_contract = ByContract({}, {})
        if self._judge.standard == CONTRACT and not dropped:
            reduced = self._golden.reduced
            by_contract = judge_call(function, api, args, kwargs, gradients, mine, reduced=reduced)
        outputs = self._judge.outputs(
            api,
            golden.output,
            mine.output,
            peer.output,
            dropped=dropped,
            by_contract=by_contract.outputs,
        )
        found: list[OutputResult] = []
        problem = left_out or mine.problem or golden.problem
        if gradients is not None and not problem:
            found = self._judge.outputs(
                api,
                golden.gradients,
                mine.gradients,
                peer.gradients,
                dropped=dropped,
                by_contract=by_contract.gradients,
            )
        forward, message = _summary(outputs)
        backward, why = _summary(found) if not problem else (SKIP, problem)
        if is_conversion(api):
            message = f"{message}; {_CONVERSION}" if message else _CONVERSION
        result = ApiResult(
            call.name, forward, backward, joined(message, why), tuple(outputs), tuple(found)
        )
        if self._error_data is not None and result.worst not in (PASS, SKIP, BLANK):
            tensors = {
                "forward.input": [*args, *kwargs.values()],
                "forward.output.bench": golden.output,
                "forward.output.device": mine.output,
                "backward.input": gradients,
                "backward.output.bench": golden.gradients,
                "backward.output.device": mine.gradients,
            }
            save_error_data(self._error_data, call.name, tensors)
        return result


def _stored_bytes(values: Sequence[ApiValue]) -> int:
    """Of the results of a call that the dump holds, which are as large as they are."""
    total = 0
    for value in values:
        if value.section == "output" and value.file is not None:
            with contextlib.suppress(OSError):
                total += os.stat(value.file).st_size  # noqa: PTH116  Path costs more
    return total


def _first_that_runs(
    functions: Sequence[Callable[..., Any]], run: Callable[[Callable[..., Any]], Run]
) -> tuple[Callable[..., Any], Run]:
    """The function that takes the recorded arguments, of those with the recorded name.

    Raises:
        UncheckableError: none does; the reason is that of the first.
    """
    first: UncheckableError | None = None
    for function in functions:
        try:
            return function, run(function)
        except UncheckableError as error:
            first = first or error
    assert first is not None
    raise first


def _no_backward(api: str, kwargs: Mapping[str, Any]) -> str:
    """Why the backward pass of a call is not run; empty if it is."""
    if kwargs.get("out") is not None:
        return f"{LEFT_OUT} calls that write to out= have none"
    if api in _NO_BACKWARD:
        return f"{LEFT_OUT} that of {api} is not checked"
    return ""


def _summary(results: Sequence[OutputResult]) -> tuple[Status, str]:
    """The worst status that was found, with the message of the first that has it."""
    status = worst([result.status for result in results if result.status != SKIP])
    if status == BLANK and results:
        status = SKIP
    return status, next((each.message for each in results if each.status == status), "")


@contextlib.contextmanager
def _same_random_numbers(wanted: bool) -> Iterator[None]:
    """Begin at the same place in the random numbers of the CPU, and leave them as they were."""
    if not wanted:
        yield
        return
    import torch

    with _random, torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        yield
