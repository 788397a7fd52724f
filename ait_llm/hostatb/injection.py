"""Where faults are wanted: requests of the user, and their effect on a kernel.

Faults are requested with :func:`inject` or the environment variable ``HOSTATB_FAULT``::

    name[@Operation][:layer=N,step=M,op=2_1_3]

``@Operation`` restricts a fault to an operation type (``@Linear`` is short for
``@LinearOperation``), ``layer`` to the N-th layer, ``step`` to the M-th execution of the top-level
operation (both from 0), ``op`` to one operation and what is below it. Several requests are joined
by ``;``. A request that nothing matched is told on stderr when the process ends.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ait_llm.core import OpId
from ait_llm.errors import UsageError
from ait_llm.hostatb.faults import Compute, KernelCall, faults
from ait_llm.hostatb.site import Site
from ait_llm.opcheck.golden.base import Result

VARIABLE = "HOSTATB_FAULT"
_REQUEST = re.compile(r"(?P<name>\w+)(@(?P<operation>\w+))?(:(?P<options>.*))?")
_NUMBERS = ("layer", "step")


@dataclass(slots=True)
class Request:
    """A fault and where it is wanted.

    Attributes:
        text: as the user wrote it.
        name: the fault.
        operation: operation type, or None for all.
        layer, step: numbers from 0, or None for all.
        op: an operation and all below it, or None for all.
        applied: how many kernels it changed.
        last_step: step of the last kernel it changed.
    """

    text: str
    name: str
    operation: str | None = None
    layer: int | None = None
    step: int | None = None
    op: OpId | None = None
    applied: int = 0
    last_step: int | None = None

    def matches(self, site: Site) -> bool:
        """True for an operator that the request is about, at its current step."""
        if self.operation is not None and site.operation.lower() != self.operation.lower():
            return False
        if self.layer is not None and site.layer != self.layer:
            return False
        if self.step is not None and site.clock.step != self.step:
            return False
        if self.op is not None and (site.op_id is None or not site.op_id.is_within(self.op)):
            return False
        return not (faults.get(self.name).once_per_step and self.last_step == site.clock.step)


def parse_requests(text: str) -> list[Request]:
    """Parse requests joined by ``;``.

    Raises:
        UnknownNameError: there is no such fault; the message names the nearest or all.
        UsageError: an option is unknown or has a value that cannot be used.
    """
    return [_parse(part.strip()) for part in text.split(";") if part.strip()]


def _parse(text: str) -> Request:
    found = _REQUEST.fullmatch(text)
    if found is None:
        raise UsageError(
            f"fault {text!r} is not of the form name[@Operation][:layer=N,step=M,op=2_1_3]"
        )
    faults.get(found["name"])
    request = Request(text, found["name"])
    if found["operation"]:
        request.operation = found["operation"].removesuffix("Operation") + "Operation"
    for option in (found["options"] or "").split(","):
        key, _, value = (part.strip() for part in option.partition("="))
        if key == "op":
            request.op = OpId.parse(value)
        elif key in _NUMBERS and value.isdecimal():
            setattr(request, key, int(value))
        elif key in _NUMBERS:
            raise UsageError(f"fault {text!r}: {key} is {value!r}; it must be a number from 0")
        elif key:
            raise UsageError(f"fault {text!r}: unknown option {key!r}; known: layer, step, op")
    return request


class ActiveFaults:
    """The requests in force; false when there are none."""

    def __init__(self, requests: Sequence[Request] = ()) -> None:
        self.requests = tuple(requests)

    def __bool__(self) -> bool:
        return bool(self.requests)

    def compute(self, call: KernelCall) -> Result:
        """The result of a kernel with every matching fault, the last requested outermost."""
        compute: Compute = _golden
        for request in self.requests:
            if request.matches(call.site):
                compute = _faulty(request, compute)
        return compute(call)

    def unused(self) -> list[Request]:
        """Requests that changed nothing so far."""
        return [request for request in self.requests if not request.applied]


def _golden(call: KernelCall) -> Result:
    return call.golden.compute(call.inputs, call.param, call.arithmetic)


def _faulty(request: Request, inner: Compute) -> Compute:
    fault = faults.get(request.name)

    def compute(call: KernelCall) -> Result:
        changed = fault.apply(call, inner)
        if changed is None:
            return inner(call)
        request.applied += 1
        request.last_step = call.site.clock.step
        return changed

    return compute


class _State:
    """The faults of this process; None until they are first asked for."""

    active: ActiveFaults | None = None


def inject(text: str) -> ActiveFaults:
    """Put faults in force for all operations of this process, instead of any before.

    Args:
        text: requests joined by ``;``; empty for none.

    Returns:
        What is in force now.

    Raises:
        UnknownNameError: there is no such fault.
        UsageError: a request cannot be understood.
    """
    _State.active = ActiveFaults(parse_requests(text))
    return _State.active


def active_faults() -> ActiveFaults:
    """The faults in force; those of ``HOSTATB_FAULT`` unless :func:`inject` was called.

    Raises:
        UnknownNameError: the variable names an unknown fault.
        UsageError: the variable cannot be understood.
    """
    if _State.active is None:
        return inject(os.environ.get(VARIABLE, ""))
    return _State.active


def _tell_unused() -> None:
    for request in _State.active.unused() if _State.active is not None else ():
        sys.stderr.write(f"hostatb: fault {request.text!r} matched no kernel of this run\n")


atexit.register(_tell_unused)
