"""vLLM tells what each of its passes computes: hooks around its model runners.

A runner is the part of a worker that calls the model. ``execute_model(scheduler_output)`` is a
step; what it computes is in the scheduler's output, in which order is in the batch that the runner
prepares. Warm-up and profiling passes come by other methods, or with ``dummy_run=True``. There are
two generations of runners, in ``vllm.v1.worker.gpu_model_runner`` and
``vllm.v1.worker.gpu.model_runner``; those of other devices are derived from them, and some have
an ``execute_model`` of their own.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ait_llm.core.notices import notice
from ait_llm.dump.inject.channel import report
from ait_llm.dump.inject.settings import COMPILE_ANEW
from ait_llm.dump.inject.site.ait_torch_capture import when_imported
from ait_llm.dump.pytorch.choosing import settings_of
from ait_llm.dump.pytorch.engine_run import EngineRun, Planned
from ait_llm.dump.pytorch.engine_selection import RequestSelection

RUNNERS = {
    "vllm.v1.worker.gpu_model_runner": "GPUModelRunner",
    "vllm.v1.worker.gpu.model_runner": "GPUModelRunner",
    "vllm_ascend.worker.model_runner_v1": "NPUModelRunner",
}
"""Classes of runners by their modules; those that are derived from them come by their methods."""
_DRY = ("_dummy_run", "profile_run", "capture_model", "profile_cudagraph_memory")


class VllmRunners:
    """Follows the model runners of this process.

    Args:
        selection: which passes are captured.
        on_sampled: is told what a pass chose: its runner, number, and tokens by request.
        is_on: asked before each pass whether it may be captured at all.
        while_compiled: is entered around passes in which a model may be compiled.
        on_end: is told that a pass has ended, with what was chosen in it.
    """

    def __init__(
        self,
        selection: RequestSelection,
        on_sampled: Callable[[EngineRun, int, dict[str, Sequence[int]]], None],
        is_on: Callable[[], bool],
        while_compiled: Callable[[], AbstractContextManager[None]] = nullcontext,
        on_end: Callable[[EngineRun], None] | None = None,
    ) -> None:
        self._on_end = on_end
        self._selection = selection
        self._on_sampled = on_sampled
        self._runs: weakref.WeakKeyDictionary[Any, EngineRun] = weakref.WeakKeyDictionary()
        self._running: list[EngineRun] = []
        self._is_on = is_on
        self._while_compiled = while_compiled
        self._captures = True
        self._complained = False

    @property
    def running(self) -> EngineRun | None:
        """The run whose runner is at work."""
        return self._running[-1] if self._running else None

    @property
    def seen(self) -> bool:
        """True if this process has a runner."""
        return bool(self._runs)

    @property
    def step(self) -> int:
        """The newest pass of any runner; -1 before the first."""
        return max((run.step for run in self._runs.values()), default=-1)

    def install(self) -> None:
        """Wrap the runners' methods, now or when they are imported."""
        for name in RUNNERS:
            if name in sys.modules:
                self._wrap(name)
            else:
                when_imported(name, functools.partial(self._wrap, name))

    def _wrap(self, module: str) -> None:
        kind = getattr(sys.modules.get(module), RUNNERS[module], None)
        if not isinstance(kind, type):
            report("engine", problem=f"{module} has no {RUNNERS[module]}")
            return
        self._replace(kind, "execute_model", self._executing)
        self._replace(kind, "sample_tokens", self._sampling)
        self._replace(kind, "prepare_inputs", self._preparing)
        for name in _DRY:
            self._replace(kind, name, self._dry)

    def _replace(
        self, kind: type, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        method = kind.__dict__.get(name)
        if callable(method) and not hasattr(method, "ait_wrapped"):
            wrapped = functools.wraps(method)(make(method))
            wrapped.ait_wrapped = True  # type: ignore[attr-defined]
            setattr(kind, name, wrapped)

    def _executing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def execute_model(runner: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            run = self._run_of(runner)
            if self.running is run:  # a derived runner calls the one that it is derived from
                return method(runner, scheduler_output, *args, **kwargs)
            if _is_dummy(args, kwargs):
                with self._at_work(run), run.dry():
                    return method(runner, scheduler_output, *args, **kwargs)
            with self._at_work(run):
                self._guarded(self._begin, runner, run, scheduler_output)
                result = method(runner, scheduler_output, *args, **kwargs)
            if self._captures:
                self._guarded(self._sampled, run, result)
                if result is not None:  # else what it chooses comes by sample_tokens
                    self._ended(run)
            return result

        return execute_model

    def _sampling(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def sample_tokens(runner: Any, *args: Any, **kwargs: Any) -> Any:
            run = self._run_of(runner)
            if self.running is run or not self._captures:
                return method(runner, *args, **kwargs)
            with self._at_work(run):
                result = method(runner, *args, **kwargs)
            self._guarded(self._sampled, run, result)
            self._ended(run)
            return result

        return sample_tokens

    def _preparing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def prepare_inputs(runner: Any, *args: Any, **kwargs: Any) -> Any:
            batch = method(runner, *args, **kwargs)
            if self._captures:
                self._guarded(lambda: self._run_of(runner).packed(batch.req_ids))
            return batch

        return prepare_inputs

    def _dry(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def dry_run(runner: Any, *args: Any, **kwargs: Any) -> Any:
            run = self._run_of(runner)
            compiled = self._while_compiled() if _compiles(runner) else nullcontext()
            with self._at_work(run), run.dry(), compiled:
                return method(runner, *args, **kwargs)

        return dry_run

    @contextmanager
    def _at_work(self, run: EngineRun) -> Iterator[None]:
        self._running.append(run)
        run.is_idle = False
        try:
            yield
        finally:
            self._running.remove(run)
            run.is_idle = True

    def _run_of(self, runner: Any) -> EngineRun:
        run = self._runs.get(runner)
        if run is None:
            run = self._runs[runner] = EngineRun(self._selection, _order_of(weakref.ref(runner)))
        return run

    def _begin(self, runner: Any, run: EngineRun, output: Any) -> None:
        run.finished(output.finished_req_ids)
        if not output.total_num_scheduled_tokens:
            return
        self._captures = False
        self._captures = self._is_on()
        if self._captures:
            run.begin(list(_planned(runner, run, output)))
        else:
            run.skip(
                [(new.req_id, len(new.prompt_token_ids or ())) for new in output.scheduled_new_reqs]
            )

    def _sampled(self, run: EngineRun, result: Any) -> None:
        """Pass on what was chosen; what is still on its way to the host is waited for by others."""
        step = run.step
        if hasattr(result, "sampled_token_ids") and getattr(result, "req_ids", None):
            tokens = dict(zip(result.req_ids, result.sampled_token_ids, strict=False))
            self._on_sampled(run, step, tokens)
        elif callable(getattr(result, "get_output", None)):
            get_output = result.get_output

            def get_and_tell() -> Any:
                found = get_output()
                self._guarded(
                    lambda: self._on_sampled(
                        run,
                        step,
                        dict(zip(found.req_ids, found.sampled_token_ids, strict=False)),
                    )
                )
                return found

            result.get_output = get_and_tell

    def _ended(self, run: EngineRun) -> None:
        if self._on_end is not None:
            self._guarded(self._on_end, run)

    def _guarded(self, call: Callable[..., None], *arguments: Any) -> None:
        """Whatever fails here must not fail the engine."""
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001 - said once
            if not self._complained:
                self._complained = True
                reason = f"{type(error).__name__}: {error}"
                report("engine", problem=reason)
                notice(f"what vLLM schedules cannot be read: {reason}")


def _compiles(runner: Any) -> bool:
    """True for a runner whose model is compiled, or recorded as graphs of a device."""
    config = getattr(getattr(runner, "vllm_config", None), "compilation_config", None)
    modes = (getattr(config, "mode", None), getattr(config, "cudagraph_mode", None))
    return any(mode is not None and getattr(mode, "name", "NONE") != "NONE" for mode in modes)


def compile_anew() -> None:
    """Have vLLM compile its model in each process, and keep nothing of it."""
    os.environ.update(COMPILE_ANEW)


def _is_dummy(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True for a pass that computes nothing; behind ``intermediate_tensors``."""
    return bool(kwargs.get("dummy_run") or (len(args) > 1 and args[1]))


def _order_of(runner: weakref.ref[Any]) -> Callable[[], Sequence[str]]:
    """What tells the order in which a runner has packed the requests of its pass."""

    def order() -> Sequence[str]:
        batch = getattr(runner(), "input_batch", None)
        return tuple(each for each in getattr(batch, "req_ids", ()) if each is not None)

    return order


def _planned(runner: Any, run: EngineRun, output: Any) -> Iterator[Planned]:
    """What the scheduler has planned, from its output."""
    counts = output.num_scheduled_tokens
    proposed = output.scheduled_spec_decode_tokens
    for new in output.scheduled_new_reqs:
        prompt = new.prompt_token_ids
        known = getattr(new, "prefill_token_ids", None) or prompt
        yield Planned(
            new.req_id,
            new.num_computed_tokens,
            counts[new.req_id],
            len(proposed.get(new.req_id, ())),
            known=known,
            prompt=len(prompt) if prompt is not None else None,
            restarted=True,
            sampling=settings_of(getattr(new, "sampling_params", None)),
        )
    cached = output.scheduled_cached_reqs
    resumed = getattr(cached, "resumed_req_ids", ())
    for request, first in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
        if request not in counts:
            continue
        known = prompt = None
        if not run.knows(request):  # it was there before the capture was
            known, prompt = _state_of(runner, request, first)
        yield Planned(
            request,
            first,
            counts[request],
            len(proposed.get(request, ())),
            known=known,
            prompt=prompt,
            restarted=request in resumed,
        )


def _state_of(runner: Any, request: str, computed: int) -> tuple[Sequence[int] | None, int | None]:
    """Tokens of a request and of its prompt as the runner has them."""
    states: Any = getattr(runner, "req_states", None)
    if states is not None:
        row = states.req_id_to_index[request]
        tokens = states.all_token_ids.gpu[row, :computed].tolist()
        return tokens, int(states.prompt_len.np[row])
    state: Any = getattr(runner, "requests", {}).get(request)
    prompt = getattr(state, "prompt_token_ids", None)
    if prompt is None:
        return None, None
    chosen = itertools.takewhile(lambda token: token >= 0, state.output_token_ids)
    return [*prompt, *chosen], len(prompt)
