"""The tools: arguments in plain types, checked, to the words of a command."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from ait_llm.errors import AitError, UsageError
from ait_llm.mcp.answers import bounded
from ait_llm.mcp.limits import Limits
from ait_llm.mcp.running import run

Tool = Callable[..., str]
KINDS = ("torch", "torch-op", "tensor")


def _kind(kind: str) -> str:
    if kind not in KINDS:
        raise UsageError(f"{kind!r} is no kind of this tool; known: {', '.join(KINDS)}")
    return kind


def _value(name: str, text: str) -> str:
    """Text of the client that is no option of a command."""
    if text.startswith("-"):
        raise UsageError(f"{name} {text!r} begins with '-', which no value of it does")
    return text


def doctor(limits: Limits) -> dict[str, Any]:
    """Say what works on this machine, and what each missing thing disables. Begin here."""
    return run(["doctor", "-o", str(limits.folders[0])], limits)


def plan(limits: Limits, program: str, kind: str = "torch", budget: str = "") -> dict[str, Any]:
    """Tell how large a capture of a program would be, by running it once without writing values.

    kind: torch (modules), torch-op (modules and aten operators) or tensor (ATB operations).
    budget: such as 20G; cheaper captures are proposed for it.
    """
    words = ["plan", "--exec", limits.program(program), "--type", _kind(kind)]
    words += ["-o", str(limits.folders[0])]
    words += ["--budget", _value("budget", budget)] if budget else []
    return run(words, limits)


def dump(
    limits: Limits, program: str, output: str, kind: str = "torch", weights: bool = False
) -> dict[str, Any]:
    """Run a program and save what it computes into the folder output. Prefer plan first.

    kind: torch (modules), torch-op (modules and aten operators) or tensor (ATB operations).
    weights: save the model's weights too, so that operators can be computed again (torch kinds).
    """
    words = ["dump", "--exec", limits.program(program), "--type", _kind(kind)]
    words += ["-o", limits.path(output)]
    return run([*words, *(["--weights"] if weights else [])], limits)


def compare(
    limits: Limits, golden: str, mine: str, output: str, baseline: str = ""
) -> dict[str, Any]:
    """Compare a run with a trusted one and name the operator where the error starts.

    golden, mine: dumps or tensor files. output: folder for the reports.
    baseline: jsonl report of an earlier comparison; only what became worse then fails.
    exit_code: 0 all passed, 1 something fails (see origins), 3 something was not compared.
    """
    words = ["compare", "-gp", limits.path(golden), "-mp", limits.path(mine)]
    words += ["-o", limits.path(output), "--format", "csv", "jsonl"]
    return run([*words, *(["--baseline", limits.path(baseline)] if baseline else [])], limits)


def show(
    limits: Limits, dump: str, tensors: bool = False, step: int | None = None
) -> dict[str, Any]:
    """List the operations of a dump in the order in which they ran, with tensors if asked for."""
    words = ["show", limits.path(dump), *(["--tensors"] if tensors else [])]
    return run([*words, *(["--token", str(step)] if step is not None else [])], limits)


def opcheck(limits: Limits, dump: str, output: str, names: str = "") -> dict[str, Any]:
    """Check every operator of a dump against what it should have computed from its own inputs.

    It needs no second run. names: only types that contain one of these, such as linear,softmax.
    """
    words = ["opcheck", "-i", limits.path(dump), "-o", limits.path(output)]
    words += ["--format", "csv", "json"]
    return run([*words, *(["-opname", _value("names", names)] if names else [])], limits)


def errcheck(limits: Limits, dump: str, output: str) -> dict[str, Any]:
    """Find in a dump where NaN, Inf and saturated values are born, and how far they go.

    found: whether a place was found; exit_code: 1 if so, 3 if something could not be checked.
    """
    return run(["errcheck", "--dump", limits.path(dump), "-o", limits.path(output)], limits)


TOOLS: tuple[Callable[..., dict[str, Any]], ...] = (
    doctor,
    plan,
    dump,
    compare,
    show,
    opcheck,
    errcheck,
)


def answering(tool: Callable[..., dict[str, Any]], limits: Limits, refuse: type[Exception]) -> Tool:
    """The tool with its limits, whose answer is text and whose failures are one sentence.

    Args:
        tool: one of :data:`TOOLS`.
        limits: what it may do.
        refuse: exception that tells the client of a failure.
    """
    bound = partial(tool, limits)

    @wraps(bound.func)
    def call(**arguments: Any) -> str:
        try:
            return bounded(bound(**arguments), limits.most)
        except AitError as error:
            raise refuse(str(error)[: limits.most]) from None

    return call
