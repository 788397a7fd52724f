"""A model runner that schedules as vLLM does, and nothing else of it: names and order of calls.

The model is that of :mod:`vllm_model`, the scheduler that of :mod:`vllm_program`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class NewRequestData:
    req_id: str
    prompt_token_ids: list[int]
    num_computed_tokens: int


@dataclass
class CachedRequestData:
    req_ids: list[str] = field(default_factory=list)
    resumed_req_ids: set[str] = field(default_factory=set)
    num_computed_tokens: list[int] = field(default_factory=list)


@dataclass
class SchedulerOutput:
    scheduled_new_reqs: list[NewRequestData] = field(default_factory=list)
    scheduled_cached_reqs: CachedRequestData = field(default_factory=CachedRequestData)
    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    scheduled_spec_decode_tokens: dict[str, list[int]] = field(default_factory=dict)
    finished_req_ids: set[str] = field(default_factory=set)

    @property
    def total_num_scheduled_tokens(self) -> int:
        return sum(self.num_scheduled_tokens.values())


@dataclass
class ModelRunnerOutput:
    req_ids: list[str]
    sampled_token_ids: list[list[int]]


@dataclass
class InputBatch:
    req_ids: list[str] = field(default_factory=list)


@dataclass
class CachedRequestState:
    prompt_token_ids: list[int]
    output_token_ids: list[int] = field(default_factory=list)


class GPUModelRunner:
    def __init__(self, model: Any) -> None:
        self.model = model
        self.input_batch = InputBatch()
        self.requests: dict[str, CachedRequestState] = {}
        self._state: tuple[list[str], list[bool], torch.Tensor] | None = None

    def profile_run(self) -> None:
        self._dummy_run(4)

    def _dummy_run(self, num_tokens: int) -> None:
        ids = torch.zeros(num_tokens, dtype=torch.int32)
        self.model.cache.begin([("dummy", 0, num_tokens)])
        hidden = self.model(input_ids=ids, positions=torch.arange(num_tokens))
        self.model.compute_logits(hidden[-1:])
        self.model.cache.forget("dummy")

    def execute_model(
        self, scheduler_output: SchedulerOutput, intermediate_tensors: Any = None
    ) -> None:
        self._update_states(scheduler_output)
        if not scheduler_output.total_num_scheduled_tokens:
            return
        counts = scheduler_output.num_scheduled_tokens
        order = list(reversed(counts))  # a runner packs them in an order of its own
        self.input_batch.req_ids = order
        starts = self._starts(scheduler_output)
        ids: list[int] = []
        positions: list[int] = []
        last: list[int] = []
        goes_on: list[bool] = []
        for name in order:
            state, first, end = self.requests[name], starts[name], starts[name] + counts[name]
            tokens = state.prompt_token_ids + state.output_token_ids
            tokens += scheduler_output.scheduled_spec_decode_tokens.get(name, [])
            ids += tokens[first:end]
            positions += range(first, end)
            last.append(len(ids) - 1)
            goes_on.append(end < len(tokens))
        self.model.cache.begin([(name, starts[name], counts[name]) for name in order])
        padded = -len(ids) % 2  # a batch is padded to sizes that were compiled
        hidden = self.model(
            input_ids=torch.tensor(ids + [0] * padded, dtype=torch.int32),
            positions=torch.tensor(positions + [0] * padded),
            intermediate_tensors=None,
            inputs_embeds=None,
        )
        self._state = order, goes_on, self.model.compute_logits(hidden[last])

    def sample_tokens(self, grammar_output: Any) -> ModelRunnerOutput:
        assert self._state is not None
        order, goes_on, logits = self._state
        chosen = [
            [] if more else [int(row.argmax())] for more, row in zip(goes_on, logits, strict=True)
        ]
        for name, tokens in zip(order, chosen, strict=True):
            self.requests[name].output_token_ids += tokens
        return ModelRunnerOutput(list(order), chosen)

    def _update_states(self, output: SchedulerOutput) -> None:
        for name in output.finished_req_ids:
            self.requests.pop(name, None)
        for new in output.scheduled_new_reqs:
            self.requests[new.req_id] = CachedRequestState(list(new.prompt_token_ids))

    def _starts(self, output: SchedulerOutput) -> dict[str, int]:
        cached = output.scheduled_cached_reqs
        starts = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        return starts | {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
