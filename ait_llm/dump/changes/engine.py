"""Changes of vLLM: of what its engine is made with, and of the requests that it gets."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ait_llm.core.notices import notice
from ait_llm.dump.changes.calls import MOST_ROWS, MOST_TOKENS
from ait_llm.dump.changes.catalogue import NotPossibleError
from ait_llm.dump.changes.ranks import RANKS
from ait_llm.dump.inject.channel import report
from ait_llm.dump.inject.settings import CHANNEL_VARIABLE
from ait_llm.dump.inject.site.ait_torch_capture import when_imported
from ait_llm.dump.inject.switch import FILE, write_switch

_MODULE = "vllm.entrypoints.llm"
_CHUNK = 4  # tokens of a prompt in one pass
_SETTINGS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "chunks": lambda _own: {
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": _CHUNK,
    },
    "prefix": lambda _own: {"enable_prefix_caching": True},
    "compile": lambda own: {"enforce_eager": not own.get("enforce_eager", False)},
    "ranks": lambda own: _on_two_ranks(own),
}
"""What the engine is made with, by the name of the change and the program's own settings."""
_REQUESTS = ("after", "batch", "place", "prefix")
_PROCESS = ("plain", "again", "threads", "memory")
_SEEN_AFTER = 0.5  # seconds after which an engine has seen that captures are off or on
_TOKENS = "prompt_token_ids"
_CORES = "VLLM_CPU_OMP_THREADS_BIND"
"""Cores of each rank on the CPU; without it two ranks need two NUMA nodes."""
Call = Callable[..., Any]


class ChangedEngine:
    """Stands around the engines of a program and their ``generate``.

    Args:
        change: name of the change; ``plain`` for none, where only answers are told.
        hear: is told of events by name, with facts: ``engine``, ``changed``, ``unchanged`` and
            ``answer``.
    """

    def __init__(self, change: str, hear: Callable[..., None] = report) -> None:
        self._change, self._hear = change, hear
        self._answers = 0
        self._told: set[str] = set()

    def install(self) -> None:
        """Change the engines that are there or will be."""
        if _MODULE in sys.modules:
            self._patch()
        else:
            when_imported(_MODULE, self._patch)

    def _patch(self) -> None:
        kind = sys.modules[_MODULE].LLM
        make, generate = kind.__init__, kind.generate

        @functools.wraps(make)
        def made(engine: Any, *args: Any, **kwargs: Any) -> None:
            self._hear("engine")
            try:
                settings = _SETTINGS.get(self._change, _unchanged)(kwargs)
                make(engine, *args, **{**kwargs, **settings})
            except NotPossibleError as error:
                self._tell_unchanged(str(error))
                make(engine, *args, **kwargs)
                return
            except (TypeError, ValueError) as error:  # of its settings; before anything is made
                if not settings:
                    raise
                self._tell_unchanged(f"vLLM does not take it here: {_first_line(error)}")
                make(engine, *args, **kwargs)
                return
            if settings:
                self._tell_changed()
            elif self._change not in (*_PROCESS, *_REQUESTS):
                self._tell_unchanged("vLLM has no such setting that ait changes")

        @functools.wraps(generate)
        def answered(engine: Any, prompts: Any, *args: Any, **kwargs: Any) -> Any:
            outputs = self._generate(functools.partial(generate, engine), prompts, args, kwargs)
            tokens = [
                list(map(int, each.outputs[0].token_ids[:MOST_TOKENS]))
                for each in outputs[:MOST_ROWS]
            ]
            self._hear("answer", number=self._answers, generated=True, prompt=0, tokens=tokens)
            self._answers += 1
            return outputs

        kind.__init__, kind.generate = made, answered

    def _generate(self, call: Call, prompts: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """What the engine answers to the prompts, asked with the change."""
        if self._change not in _REQUESTS:
            return call(prompts, *args, **kwargs)
        several = list(prompts) if isinstance(prompts, (list, tuple)) else [prompts]
        try:
            others = [_other(each, number) for number, each in enumerate(several)]
            settings = args[0] if args else kwargs.get("sampling_params")
            _refuse_draws(settings)
            if isinstance(settings, (list, tuple)):
                raise NotPossibleError("each request has settings of its own")
        except NotPossibleError as error:
            self._tell_unchanged(str(error))
            return call(prompts, *args, **kwargs)
        self._tell_changed()
        if self._change in ("after", "prefix"):
            self._unseen(call, others if self._change == "after" else several, args, kwargs)
            return call(prompts, *args, **kwargs)
        count = len(several)
        if self._change == "batch":
            return call([*several, *others], *args, **kwargs)[:count]
        return call([others[0], *several], *args, **kwargs)[1:]

    def _unseen(self, call: Call, prompts: Sequence[Any], args: Any, kwargs: Any) -> None:
        """Have prompts answered without a capture."""
        channel = os.environ.get(CHANNEL_VARIABLE)
        if channel is None:
            call(list(prompts), *args, **kwargs)
            return
        file = Path(channel) / FILE
        write_switch(file, on=False)
        time.sleep(_SEEN_AFTER)
        try:
            call(list(prompts), *args, **kwargs)
        finally:
            write_switch(file, on=True)
            time.sleep(_SEEN_AFTER)

    def _tell_changed(self) -> None:
        if self._change not in self._told:
            self._told.add(self._change)
            self._hear("changed", change=self._change)

    def _tell_unchanged(self, reason: str) -> None:
        if reason not in self._told:
            self._told.add(reason)
            self._hear("unchanged", change=self._change, reason=reason)
            notice(f"an engine is asked as it is: {reason}")


def _unchanged(_own: Mapping[str, Any]) -> dict[str, Any]:
    return {}


def _on_two_ranks(own: Mapping[str, Any]) -> dict[str, Any]:
    """Settings for two ranks of tensor parallelism, on the CPU on half of its cores each.

    Raises:
        NotPossibleError: it has several ranks already, or there is one core.
    """
    if any(own.get(name, 1) != 1 for name in ("tensor_parallel_size", "pipeline_parallel_size")):
        raise NotPossibleError("it runs on several ranks already")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < RANKS:
        raise NotPossibleError("this machine has one core")
    half = len(cores) // RANKS
    shares = (cores[:half], cores[half : RANKS * half])
    os.environ.setdefault(_CORES, "|".join(",".join(map(str, share)) for share in shares))
    return {"tensor_parallel_size": RANKS}


def _first_line(error: Exception) -> str:
    """The first line of its text that says something, without a full stop."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line), type(error).__name__).rstrip(".")


def _other(prompt: Any, number: int) -> Any:
    """A prompt of the same length of half of its tokens or words.

    Raises:
        NotPossibleError: it is neither text nor token ids.
    """
    if isinstance(prompt, str):
        return " ".join(_turned(prompt.split(), number))
    if isinstance(prompt, Mapping) and isinstance(prompt.get(_TOKENS), (list, tuple)):
        return {**prompt, _TOKENS: _turned(prompt[_TOKENS], number)}
    if isinstance(prompt, (list, tuple)) and all(isinstance(each, int) for each in prompt):
        return _turned(prompt, number)
    raise NotPossibleError("a prompt is neither text nor token ids")


def _turned(items: Sequence[Any], number: int) -> list[Any]:
    """Half of it twice, from back to front, begun elsewhere for each prompt: no prefix is shared.

    With all of it, what adds up the rows of a batch could stay the same.
    """
    turned = list(reversed(items))
    start = number % len(turned) if turned else 0
    half = [*turned[start:], *turned[:start]][: (len(turned) + 1) // 2]
    return [*half, *half][: len(turned)]


def _refuse_draws(settings: Any) -> None:
    """Refuse requests that draw random numbers.

    Raises:
        NotPossibleError: they do.
    """
    if settings is None or getattr(settings, "temperature", 0) != 0:
        raise NotPossibleError("it samples, and other rows draw other numbers; use greedy search")
