"""What a change makes of a process and its models: memory, threads, attention, compilation."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils import deterministic

from ait_llm.dump.changes.catalogue import PERTURBED, NotPossibleError
from ait_llm.dump.changes.ranks import distribute

_ATTENTIONS = {"eager": "sdpa"}  # any other one is changed to the plain one
_M_PERTURB = -6  # of mallopt(3)


def change_process(change: str) -> None:
    """Make what concerns all of the process, before the program's models are there."""
    if change == "threads":
        torch.set_num_threads(1 if torch.get_num_threads() > 1 else 2)
    elif change == "memory":
        _fill_memory()


def change_model(change: str, model: nn.Module) -> None:
    """Make what concerns one model, before its first call.

    Raises:
        NotPossibleError: the model has no other attention.
    """
    if change == "attention":
        _exchange_attention(model)
    elif change == "compile":
        if getattr(model, "_compiled_call_impl", None) is not None:
            model._compiled_call_impl = None
        else:
            model.compile()
    elif change == "ranks":
        distribute(model)


@contextmanager
def changed_here(change: str, model: nn.Module) -> Iterator[None]:
    """Make what concerns this process and a model, and put both back at the end.

    Raises:
        NotPossibleError: the model has no other attention.
    """
    threads, is_deterministic = (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
    )
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    fills = deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    compiled = getattr(model, "_compiled_call_impl", None)
    attention = getattr(getattr(model, "config", None), "_attn_implementation", None)
    with warnings.catch_warnings():
        change_process(change)
        if change == "memory":
            _perturb(int(PERTURBED["MALLOC_PERTURB_"]))
        try:
            change_model(change, model)
            yield
        finally:
            if change == "memory":
                _perturb(0)
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(is_deterministic, warn_only=warns)
            deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]
            if change == "compile":
                model._compiled_call_impl = compiled
            elif change == "attention" and attention is not None:
                model.set_attn_implementation(attention)  # type: ignore[operator]


def _perturb(value: int) -> None:
    """Have the C library fill new memory from now on; others than glibc cannot."""
    change: Any = getattr(ctypes.CDLL(None), "mallopt", None)
    if change is not None:
        change(_M_PERTURB, value)


def _fill_memory() -> None:
    """Have torch fill new tensors: with NaN, or with the largest integer."""
    pattern = r".*does not have a deterministic implementation.*"
    warnings.filterwarnings("ignore", message=pattern)
    torch.use_deterministic_algorithms(True, warn_only=True)
    deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]


def _exchange_attention(model: nn.Module) -> None:
    config = getattr(model, "config", None)
    now = getattr(config, "_attn_implementation", None)
    choose: Any = getattr(model, "set_attn_implementation", None)
    if not isinstance(now, str) or choose is None:
        raise NotPossibleError("the model has one attention only")
    other = _ATTENTIONS.get(now, "eager")
    try:
        choose(other)
    except (ValueError, ImportError) as error:
        raise NotPossibleError(f"the model has no {other} attention") from error
    if getattr(model.config, "_attn_implementation", None) != other:
        raise NotPossibleError(f"the model has no {other} attention")
