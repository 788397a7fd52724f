"""Whether heads that one side has in another order can be put in order."""

from __future__ import annotations

from ait_llm.errors import UsageError
from ait_llm.program.one_pass import Pass

_OF_LLAMA_CPP = ("ait_ggml.", "ggml.")


def check_head_order(golden: Pass, mine: Pass) -> None:
    """Refuse a comparison of llama.cpp with modules that have no weights.

    It keeps the rows of query and key projections in the order of the other rotary layout, and runs
    projections of one shape in another order. Only weights tell which is which.

    Raises:
        UsageError: they are missing; the text says how to have them.
    """
    if _has_modules_alone(golden) and _is_of_llama_cpp(mine):
        raise UsageError(
            "golden has no weights, and llama.cpp keeps heads in an order that only weights tell: "
            "capture golden with --weights, or give --weights-from golden=DIR"
        )
    if _has_modules_alone(mine) and _is_of_llama_cpp(golden):
        raise UsageError(
            "mine has no weights, and llama.cpp keeps heads in an order that only weights tell: "
            "capture mine with --weights, or give --weights-from mine=DIR"
        )


def _has_modules_alone(run: Pass) -> bool:
    return run.traits.parameters and not run.weights


def _is_of_llama_cpp(run: Pass) -> bool:
    return any(each.type.startswith(_OF_LLAMA_CPP) for each in run.operations)
