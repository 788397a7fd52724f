"""Outermost calls of models of transformers, made with a change, giving the answer without it."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from ait_llm.core.notices import notice
from ait_llm.dump.changes.catalogue import NotPossibleError
from ait_llm.dump.changes.padding import Padded, pad
from ait_llm.dump.changes.process import change_model
from ait_llm.dump.changes.prompts import (
    CACHE,
    behind_prefix,
    in_chunks,
    refuse_draws,
    token_ids,
    without_cache,
)
from ait_llm.dump.changes.rows import OtherRows, row_count, shuffled
from ait_llm.dump.inject.channel import report
from ait_llm.dump.inject.site.ait_torch_capture import when_imported
from ait_llm.dump.pytorch.compiling import is_compiling

_MODELS, _GENERATION = "transformers.modeling_utils", "transformers.generation.utils"
MOST_ROWS, MOST_TOKENS = 64, 4096
"""Of an answer that is reported."""
Call = Callable[..., Any]


class _Depth(threading.local):
    """How many calls are open on one thread."""

    value = 0


class ChangedCalls:
    """Stands around ``generate`` and the outermost calls of models.

    Args:
        change: name of the change; ``plain`` for none, where only answers are told.
        hear: is told of events by name, with facts: ``changed``, ``unchanged`` and ``answer``.
        changes_models: make what concerns a model before its first call; False where that is done.
    """

    def __init__(
        self, change: str, hear: Callable[..., None] = report, *, changes_models: bool = True
    ) -> None:
        self._change = change
        self._changes_models = changes_models
        self._hear = hear
        self._depth = _Depth()
        self._held: weakref.WeakKeyDictionary[Any, Padded | None] = weakref.WeakKeyDictionary()
        self._answers = 0
        self._told: set[str] = set()
        self._models: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._after = False

    def install(self) -> None:
        """Change calls of all models that are there or will be."""
        for module, patch in ((_MODELS, self._around_calls), (_GENERATION, self._around_generate)):
            if module in sys.modules:
                patch()
            else:
                when_imported(module, patch)

    def _around_calls(self) -> None:
        kind = sys.modules[_MODELS].PreTrainedModel
        original = kind.__call__

        @functools.wraps(original)
        def call(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or self._depth.value:
                return original(model, *args, **kwargs)
            return self.outermost(
                model, functools.partial(original, model), model.forward, args, kwargs
            )

        kind.__call__ = call

    def _around_generate(self) -> None:
        kind = sys.modules[_GENERATION].GenerationMixin
        original = kind.generate

        @functools.wraps(original)
        def answer(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
            made = functools.partial(original, model)
            if self._depth.value:
                return made(*args, **kwargs)
            return self.outermost(model, made, original, args, kwargs)

        kind.generate = answer

    def outermost(
        self,
        model: nn.Module,
        call: Call,
        function: Call,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Make a call with the change, and return what the caller would have got without.

        Args:
            model: that is called.
            call: makes the call.
            function: what is called, for the names of its arguments.
            args, kwargs: of the call.
        """
        self._depth.value += 1
        try:
            named = _named(function, args, kwargs)
            generates = getattr(function, "__name__", "") == "generate"
            if named is None:
                self._tell_unchanged("its arguments have no names")
                return call(*args, **kwargs)
            output = self._changed(model, call, named, generates=generates)
            self._report_answer(model, named, output, generates=generates)
            return output
        finally:
            self._depth.value -= 1

    def _changed(
        self, model: nn.Module, call: Call, named: dict[str, Any], *, generates: bool
    ) -> Any:
        """The result of the call, made with the change where that is possible."""
        try:
            self._change_model(model)
            make = self._made(model, call, named, generates=generates)
        except NotPossibleError as error:
            self._tell_unchanged(str(error))
            return call(**named)
        except Exception as error:  # noqa: BLE001 - a failure of ours is never the program's
            self._tell_unchanged(f"{type(error).__name__}: {error}")
            return call(**named)
        if self._change not in self._told:
            self._told.add(self._change)
            self._hear("changed", change=self._change)
        return make()

    def _change_model(self, model: nn.Module) -> None:
        """Make what concerns a model, once.

        Raises:
            NotPossibleError: that cannot be done, now or when it was tried.
        """
        if self._changes_models and model not in self._models:
            self._models[model] = ""
            try:
                change_model(self._change, model)
            except Exception as error:  # noqa: BLE001 - a failure of ours is never the program's
                known = isinstance(error, NotPossibleError)
                self._models[model] = str(error) if known else f"{type(error).__name__}: {error}"
        if reason := self._models.get(model, ""):
            raise NotPossibleError(reason)

    def _made(
        self, model: nn.Module, call: Call, named: dict[str, Any], *, generates: bool
    ) -> Callable[[], Any]:
        """What makes the changed call.

        Raises:
            NotPossibleError: it cannot be changed.
        """
        match self._change:
            case "batch" | "place":
                return self._with_rows(model, call, named, generates=generates)
            case "padding-left" | "padding-right":
                return self._with_padding(model, call, named, generates=generates)
            case "chunks" | "prefix" | "no-cache" if _keeps_state(model):
                raise NotPossibleError("the model keeps a state in place of a cache")
            case "chunks":
                return in_chunks(model, call, named, generates=generates)
            case "prefix":
                return behind_prefix(model, call, named, generates=generates)
            case "no-cache":
                return without_cache(call, named, generates=generates)
            case "after":
                return self._after_another(call, named)
        return lambda: call(**named)

    def _with_rows(
        self, model: nn.Module, call: Call, named: dict[str, Any], *, generates: bool
    ) -> Callable[[], Any]:
        refuse_draws(model, named, generates=generates)
        encodes = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
        if self._change == "place" and generates and encodes:
            raise NotPossibleError("its decoder begins all rows alike, and none is told apart")
        held = self._held_by(named)
        changed, undo = OtherRows(in_front=self._change == "place").change(
            named, row_count(named), first=not held
        )

        def make() -> Any:
            output = call(**changed)
            self._hold(output, None)
            return undo(output)

        return make

    def _with_padding(
        self, model: nn.Module, call: Call, named: dict[str, Any], *, generates: bool
    ) -> Callable[[], Any]:
        refuse_draws(model, named, generates=generates)
        left = self._change == "padding-left"
        config = getattr(model, "config", None)
        encodes = bool(getattr(config, "is_encoder_decoder", False))
        if generates and left is encodes:
            side = "right" if encodes else "left"
            raise NotPossibleError(f"its prompts are padded on the {side}")
        held = self._held_by(named)
        changed, undo, padded = pad(
            model,
            named,
            left=left,
            generates=generates,
            parameters=frozenset(inspect.signature(model.forward).parameters),
            known=held[0] if held else None,
        )

        def make() -> Any:
            output = call(**changed)
            self._hold(output, padded)
            return undo(output)

        return make

    def _after_another(self, call: Call, named: dict[str, Any]) -> Callable[[], Any]:
        if self._after:
            return lambda: call(**named)
        name, ids = token_ids(named)
        other = {
            **named,
            name: torch.stack([shuffled(row, 1 + place) for place, row in enumerate(ids)]),
        }
        if named.get(CACHE) is not None:
            raise NotPossibleError("it brings a cache of its own")
        self._after = True

        def make() -> Any:
            call(**other)
            return call(**named)

        return make

    def _held_by(self, named: Mapping[str, Any]) -> tuple[Padded | None, ...]:
        """The padding of a call's cache that was made with the change; nothing without a cache.

        Raises:
            NotPossibleError: the cache was made without the change.
        """
        cache = named.get(CACHE)
        if cache is None:
            return ()
        if cache in self._held:
            return (self._held[cache],)
        if type(cache).__name__ != "DynamicCache" or _length(cache):
            raise NotPossibleError("it brings a cache of its own")
        return ()

    def _hold(self, output: Any, padded: Padded | None) -> None:
        """Know a cache again that a call has filled, for as long as the program has it."""
        cache = output.get(CACHE) if isinstance(output, Mapping) else None
        if cache is not None:
            with suppress(TypeError):  # one that nobody can watch is not known again
                self._held[cache] = padded

    def _tell_unchanged(self, reason: str) -> None:
        if reason not in self._told:
            self._told.add(reason)
            self._hear("unchanged", change=self._change, reason=reason)
            if self._change not in ("plain", "again"):
                notice(f"a call is made as it is: {reason}")

    def _report_answer(
        self, model: nn.Module, named: Mapping[str, Any], output: Any, *, generates: bool
    ) -> None:
        tokens = _answer(output, generates=generates)
        if tokens is not None:
            prompt = _prompt(model, named) if generates else 0
            facts = {"generated": generates, "prompt": prompt, "tokens": tokens}
            self._hear("answer", number=self._answers, **facts)
        self._answers += 1


def _named(function: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Arguments by name; None where a positional one has none."""
    names = [
        each.name
        for each in inspect.signature(function).parameters.values()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) and each.name != "self"
    ]
    if len(args) > len(names):
        return None
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _prompt(model: nn.Module, named: Mapping[str, Any]) -> int:
    """Tokens that ``generate`` gives back before those that it makes."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return 1
    try:
        return int(token_ids(named)[1].shape[1])
    except NotPossibleError:  # embeddings are not given back
        return 0


def _keeps_state(model: nn.Module) -> bool:
    """True for models that keep no keys and values, such as those of Mamba."""
    return "cache_params" in inspect.signature(model.forward).parameters


def _length(cache: Any) -> int:
    length = getattr(cache, "get_seq_length", None)
    return int(length()) if callable(length) else 1


def _answer(output: Any, *, generates: bool) -> list[list[int]] | None:
    """The tokens of an answer: those of ``generate``, or the largest logit at each place."""
    if isinstance(output, Mapping):
        output = output.get("sequences" if generates else "logits")
    if not isinstance(output, Tensor) or output.device.type == "meta":
        return None
    if not generates:
        if output.dim() != 3 or not output.is_floating_point():
            return None
        output = output.argmax(-1)
    if output.dim() != 2:
        return None
    found: list[list[int]] = output[:MOST_ROWS, :MOST_TOKENS].tolist()
    return found
