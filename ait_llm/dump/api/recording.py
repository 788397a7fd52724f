"""The capture of one step of one process: what its calls got and returned."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import FrameType
from typing import Any

from torch import Tensor, nn

from ait_llm.dump.api.calls import Call
from ait_llm.dump.api.collectives import MASKED_INPUTS, MASKED_OUTPUTS, without
from ait_llm.dump.api.complaints import reason_of
from ait_llm.dump.api.growing_json import encode
from ait_llm.dump.api.names import Api
from ait_llm.dump.api.record_folder import Encoded, RecordFolder
from ait_llm.dump.pytorch.few_bits import known_rounding


class Recording(RecordFolder):
    """Turns calls of functions and modules into records."""

    # Calls of functions

    def begin(
        self,
        found: Api,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frame: FrameType | None,
        modules: list[str],
    ) -> Call | None:
        """Begin the record of a call of a function; None if it is not wanted.

        Args:
            found: the function.
            args: positional arguments.
            kwargs: keyword arguments.
            frame: of the caller.
            modules: records of the modules that are running, outermost first.
        """
        with self._lock:
            number = self._last[found.full] = next(self._counts[found.full])
            name = f"{found.full}.{number}.forward"
            if not self._begins(name, modules):
                return None
            call = Call(name, next(self._order), modules[-1] if modules else None, self.saves(name))
            try:
                if self.settings.forward and self.settings.inputs:
                    masked = MASKED_INPUTS.get(found.name) if found.prefix == "Distributed" else ()
                    self._inputs(call, *without(args, kwargs, masked or ()))
                self._place(call, frame)
                if self.settings.forward:
                    self._show(call)
            except Exception as error:  # noqa: BLE001 - foreign values; the program must go on
                self.lose(call, name, error)
            self.has_begun(call)
            return call

    @property
    def backward(self) -> bool:
        """Whether gradients are recorded."""
        return self.settings.backward

    def wants(self, found: Api) -> bool:
        """Whether calls of a function are recorded at all."""
        return self.selection.wants_function(found.prefix, found.name)

    def left_out(self, found: Api) -> Call | None:
        """The call that was just refused, where a scope may begin with its gradients."""
        if not self.selection.opens_later:
            return None
        return Call(f"{found.full}.{self._last[found.full]}.forward", 0, None, save=False)

    def end(self, call: Call, output: Any, found: Api | None = None) -> None:
        """Complete the record of a call with what it returned."""
        with self._lock:
            record: Any = call.inputs
            try:
                if self.settings.outputs and self._values:
                    record["output"] = self.describer(call).outputs(output, f"{call.name}.output")
                    for index in MASKED_OUTPUTS.get(found.full, ()) if found is not None else ():
                        if index < len(record["output"]):
                            record["output"][index] = None
            except Exception as error:  # noqa: BLE001 - foreign values; the program must go on
                record["output"] = [None]
                self.lose(call, f"{call.name}.output", error)
            if self.settings.forward:
                if len(call.shown) > 2 and "output" in record:
                    with contextlib.suppress(TypeError, ValueError):  # told when it is written
                        output = encode(record["output"])
                        record = Encoded(f'{call.shown[:-1]}, "output": {output}}}')
                self.put(call, record)
            self.selection.ended(call.name)
            self.has_ended(call)

    def drop(self, call: Call) -> None:
        """Forget a call that turned out to be none: an operator that left it to the other side."""
        with self._lock:
            if self.active:
                self._dump.end(call.name, None, call.order)
            self.has_ended(call)

    def gradients(
        self,
        name: str,
        parent: str | None,
        arriving: Any,
        leaving: Any,
        lost: Exception | None = None,
    ) -> None:
        """Write the record of a backward call.

        Args:
            name: of the record.
            parent: the record of the module whose backward pass it belongs to.
            arriving: gradients with respect to what the call returned.
            leaving: gradients with respect to what the call got.
            lost: why some of them could not be had.
        """
        with self._lock:
            if not self.active or (self.selection.has_scope and not self.selection.begins(name)):
                return
            call = Call(name, next(self._order), parent, self.saves(name))
            if lost is not None:
                call.outcome.fail(lost)
            try:
                describer = self.describer(call)
                if self._values:
                    if self.settings.inputs:
                        call.inputs["input"] = describer.outputs(arriving, f"{name}.input")
                    if self.settings.outputs:
                        call.inputs["output"] = describer.outputs(leaving, f"{name}.output")
                if self.settings.modules:
                    self.belongs(name, parent)
            except Exception as error:  # noqa: BLE001 - foreign values; the program must go on
                self.lose(call, name, error)
            self.put(call, call.inputs)
            self.selection.ended(name)

    def raised(self, call: Call, error: BaseException) -> None:
        """Complete the record of a call that raised: what it got is kept."""
        with self._lock:
            if self.settings.outputs:
                call.inputs["output"] = [None]
            if self.settings.forward:
                self.put(call, call.inputs)
            self.has_ended(call)
            self.complain(f"{call.name} raised {type(error).__name__}: {reason_of(error)}")

    # Calls of modules

    def begin_module(
        self,
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frame: FrameType | None,
        modules: list[str],
    ) -> Call | None:
        """Begin the record of a call of a module; None if it is not wanted."""
        with self._lock:
            if not self._begins(name, modules):
                return None
            call = Call(name, 0, modules[-1] if modules else None, self.saves(name))
            try:
                if self.settings.forward and self.settings.inputs:
                    self._inputs(call, args, kwargs)
                self._place(call, frame)
                if self.settings.forward:
                    self._show(call)
            except Exception as error:  # noqa: BLE001 - foreign values; the program must go on
                self.lose(call, name, error)
            self.has_begun(call)
            return call

    def end_module(self, call: Call, module: nn.Module, output: Any) -> None:
        """Complete the record of a call of a module: it stands where the call ended."""
        with self._lock:
            call.order = next(self._order)
            call.rounding = known_rounding(module)
            try:
                if self._values and self.settings.forward:
                    describer = self.describer(call)
                    if self.settings.outputs:
                        call.inputs["output"] = describer.outputs(output, f"{call.name}.output")
                    if self.settings.inputs:
                        call.inputs["parameters"] = describer.keywords(
                            _parameters(module), f"{call.name}.parameters"
                        )
            except Exception as error:  # noqa: BLE001 - foreign values; the program must go on
                call.inputs.setdefault("output", [None])
                self.lose(call, f"{call.name}.output", error)
            if self.settings.forward:
                self.put(call, call.inputs)
            self.selection.ended(call.name)
            self.has_ended(call)

    def raised_module(self, call: Call, module: nn.Module, error: BaseException) -> None:
        """Complete the record of a module that raised, or that recomputation stopped early."""
        if "StopRecomputation" not in type(error).__name__:
            self.complain(f"{call.name} raised {type(error).__name__}: {reason_of(error)}")
        self.end_module(call, module, None)

    def _begins(self, name: str, modules: list[str]) -> bool:
        """False for a call that is not wanted, or comes when the files are finished."""
        if self.paused or self.closing or not self.active:
            return False
        return self.selection.begins(name, modules)

    def _inputs(self, call: Call, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not self._values:
            return
        describer = self.describer(call)
        call.inputs["input_args"] = describer.arguments(args, f"{call.name}.input")
        call.inputs["input_kwargs"] = (
            describer.keywords(kwargs, f"{call.name}.kwargs") if kwargs else {}
        )

    def _show(self, call: Call) -> None:
        """Have the inputs on disk while the call runs: it may be the one that ends the process."""
        if not call.deferred:
            call.shown = encode(call.inputs)
            self._dump.begin(call.name, call.shown)


def _parameters(module: nn.Module) -> dict[str, Tensor]:
    """The parameters of a module itself, not of those inside it."""
    return {name: value for name, value in module._parameters.items() if value is not None}
