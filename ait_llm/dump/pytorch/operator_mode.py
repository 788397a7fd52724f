"""Recording every aten operator, nested under the module that called it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from ait_llm.dump.pytorch.compiling import eagerly
from ait_llm.dump.pytorch.identity import ObservedWrites, is_collective, may_write

if TYPE_CHECKING:
    from ait_llm.dump.pytorch.recorder import Recorder
    from ait_llm.dump.pytorch.unit import Unit

_FUNCTIONAL = "_c10d_functional"
# A rank may send before it receives, and the other one, too: whoever waits here waits for ever.
_BETWEEN_TWO = frozenset({"isend", "irecv", "batch_p2p_ops"})
_REDUCTIONS = {0: "SUM", 1: "AVG", 2: "PRODUCT", 3: "MIN", 4: "MAX"}  # RedOpType of torch


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch is untyped here
    """Sees each operator below autograd, after views and broadcasts are decided.

    Operators are recorded while ``begin`` returns a unit for them; it decides by the module that
    is running. Inputs are recorded before the operator runs, so that what it changes in place is
    seen as it was.

    Args:
        begin: gives the unit for an operator of that name, or None to leave it out.
        recorder: where values go.
        is_own: whether what runs now is the capture's own work.
    """

    # Without it torch refuses what takes functions, such as the score functions of FlexAttention.
    supports_higher_order_operators = True
    runs_eagerly = True
    """Whether parts of the program that it compiles itself run as they are."""

    def __init__(
        self,
        begin: Callable[[str], Unit | None],
        recorder: Callable[[], Recorder],
        is_own: Callable[[], bool],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch is untyped here
        self._begin = begin
        self._recorder = recorder
        self._is_own = is_own
        self._observed = ObservedWrites()
        self._eagerly = ExitStack()
        self._has_data = False  # what a program computes of shapes beside that is no loss

    def __enter__(self) -> OperatorMode:
        if self.runs_eagerly:
            self._eagerly.enter_context(eagerly())
        self._observed.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]  # torch is untyped here
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        super().__exit__(exc_type, exc_val, exc_tb)  # type: ignore[no-untyped-call]  # as above
        self._observed.__exit__(exc_type, exc_val, exc_tb)
        self._eagerly.close()

    def __torch_dispatch__(
        self,
        func: Any,  # torch._ops.OpOverload, not public
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if _is_of_shapes(args, kwargs):
            # a model without data is told by its modules, and by the first operators without any
            options = self._recorder().options
            if not options.survey and (self._has_data or options.modules):
                return func(*args, **kwargs)
        else:
            self._has_data = True
        unit = self._begin(_name(func))
        if unit is None:
            if self._is_own():
                return func(*args, **kwargs)
            return self._run(func, args, kwargs)
        recorder = self._recorder()
        if recorder.options.inputs:
            for index, value in enumerate(args):
                recorder.values(unit, value, f"input_{index}")
            for name, value in kwargs.items():
                recorder.values(unit, value, f"input_{name}")
        is_plain = isinstance(func, OpOverload)
        if is_plain and is_collective(func):
            unit.group = _group(args)
        try:
            output = self._run(func, args, kwargs)
        except BaseException as error:
            recorder.finish(unit, f"the operator raised {type(error).__name__}")
            raise
        if is_plain and _is_functional_collective(func):
            _wait_for_tensors(output)
        if is_plain and may_write(func):
            # Version counters are raised above this level, after the operator: until then a
            # changed tensor looks like the one that was saved.
            recorder.forget_saved(by_operator=True)
        if recorder.options.outputs:
            recorder.values(unit, output, "output")
        recorder.finish(unit)
        return output

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run an operator and account for what it writes, even where it fails on the way."""
        if not isinstance(func, OpOverload) or not may_write(func):
            return func(*args, **kwargs)
        writes = self._observed.begin(func, args, kwargs)
        try:
            output = func(*args, **kwargs)
            if is_collective(func):
                _wait(output)
            return output
        finally:
            writes.done()


class OperatorsOutsideGraphs(OperatorMode):  # type: ignore[no-untyped-call]  # as above
    """The same where a part of the model is compiled: it leaves that part compiled."""

    runs_eagerly = False

    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if isinstance(func, HigherOrderOperator):
            return func(*args, **kwargs or {})
        return super().__torch_dispatch__(func, types, args, kwargs)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """What torch asks before it compiles while a mode is on."""
        return True


def _name(func: Any) -> str:
    """``aten.add.Tensor``; of an operator that takes functions a name of the same form."""
    if isinstance(func, HigherOrderOperator):
        return f"higher_order.{func}.default"
    return str(func)


def _is_of_shapes(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """True for an operator on the meta device: DTensor learns shapes from such."""
    device = kwargs.get("device")
    if device is not None:  # what it makes elsewhere has data
        return torch.device(device).type == "meta"
    return any(isinstance(each, torch.Tensor) and each.is_meta for each in args)


def _is_functional_collective(func: Any) -> bool:
    """True for one that all ranks of a group call, and whose result is there later."""
    space, _, name = func._schema.name.partition("::")
    return space == _FUNCTIONAL and name not in _BETWEEN_TWO


def _wait_for_tensors(output: Any) -> None:
    """Wait for what a functional collective returned: until then it is memory that nobody wrote."""
    for each in output if isinstance(output, (list, tuple)) else (output,):
        if isinstance(each, torch.Tensor):
            torch.ops._c10d_functional.wait_tensor.default(each)


def _wait(output: Any) -> None:
    """Wait for a collective: until it is through, its results hold what was there before."""
    for each in output if isinstance(output, tuple) else (output,):
        if isinstance(each, torch.ScriptObject):
            work: Any = each  # its methods are those of its class in C++
            work.wait()


def _group(args: Sequence[Any]) -> dict[str, Any]:
    """The ranks that a collective speaks to, its own place among them, and how it adds up."""
    found: dict[str, Any] = {}
    for each in args:
        if not isinstance(each, torch.ScriptObject):
            continue
        script: Any = each  # its methods are those of its class in C++
        kind = str(each._type())
        try:
            if kind.endswith(".ProcessGroup"):
                group = torch.distributed.ProcessGroup.unbox(each)
                found["ranks"] = torch.distributed.get_process_group_ranks(group)
                found["place"] = group.rank()
            elif kind.endswith(".ReduceOp"):
                found["reduction"] = _REDUCTIONS.get(script.op(), "")
        except (RuntimeError, ValueError, KeyError, AttributeError):  # not known to this process
            return {}
    return found if "ranks" in found else {}
