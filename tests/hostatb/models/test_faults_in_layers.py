"""Each named fault is visible in the output of the layer it is injected into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import ait_llm.hostatb as torch_atb
from ait_llm.core import OpId
from ait_llm.hostatb.faults import faults
from ait_llm.hostatb.models.check import agree, tolerance
from ait_llm.hostatb.models.config import LLAMA_PRESETS
from ait_llm.hostatb.models.generate import follow, generate, make_llama, random_prompts
from ait_llm.hostatb.models.llama_torch import llama_twin
from ait_llm.hostatb.models.weights import llama_weights

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("native_library")]
TINY = LLAMA_PRESETS["tiny"]
LENGTHS = (7, 4)
# In a run of one prefill and one decode step, the layers are called in this order.
PREFILL = slice(0, 2)
DECODE = slice(2, 4)
IN_DECODE_ONLY = {"stale_padding"}
# Ids count on from run to run: from the last layer of a run to the last layers of the next one.
TO_NEXT_PREFILL = 6
TO_NEXT_DECODE = 12


@pytest.fixture(autouse=True)
def _no_faults_left() -> Iterator[None]:
    yield
    torch_atb.inject("")


@dataclass(frozen=True)
class _Run:
    """Generated tokens, the output of every layer call in order, and the id of the last layer."""

    tokens: Tensor
    outputs: list[Tensor]
    last_id: int


def _run(fault: str, monkeypatch: pytest.MonkeyPatch) -> _Run:
    outputs: list[Tensor] = []
    ids: list[OpId | None] = []
    forward = torch_atb.Operation.forward

    def spy(operation: torch_atb.Operation, inputs: Sequence[Tensor]) -> list[Tensor]:
        results = forward(operation, inputs)
        if operation.name.endswith("_layer"):
            outputs.append(results[0])
            ids.append(operation.op_id)
        return results

    torch_atb.inject(fault)
    with monkeypatch.context() as patch:
        patch.setattr(torch_atb.Operation, "forward", spy)
        model = make_llama(TINY, llama_weights(TINY, 0), LENGTHS, 2, 16)
        tokens = generate(model, random_prompts(TINY, LENGTHS, 0), 2).tokens
    assert ids[-1] is not None
    return _Run(tokens, outputs, ids[-1].parts[0])


def _layers_of_twin(tokens: Tensor) -> list[Tensor]:
    """The same outputs from PyTorch, packed."""
    outputs: list[Tensor] = []
    twin = llama_twin(TINY, llama_weights(TINY, 0))
    for layer in twin.model.layers:
        layer.register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
    follow(twin, TINY, random_prompts(TINY, LENGTHS, 0), tokens)
    real = torch.arange(LENGTHS[0]) < torch.tensor(LENGTHS).unsqueeze(1)
    return [out[real] if out.shape[1] > 1 else out[:, 0] for out in outputs]


def _error(golden: Tensor, mine: Tensor) -> float:
    return agree(golden.flatten().unsqueeze(0), mine.flatten().unsqueeze(0), 0).relative_error


def test_layers_without_faults_agree_with_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run("", monkeypatch)
    limit = tolerance(TINY.dtype, TINY.num_layers, TINY.hidden_size)
    for golden, mine in zip(_layers_of_twin(run.tokens), run.outputs, strict=True):
        assert agree(golden, mine, limit).passed


@pytest.mark.parametrize("name", list(faults))
def test_a_fault_is_visible_in_its_layer_and_not_before(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = _run("", monkeypatch)
    in_decode = name in IN_DECODE_ONLY
    layer = clean.last_id + (TO_NEXT_DECODE if in_decode else TO_NEXT_PREFILL)
    phase = DECODE if in_decode else PREFILL
    faulty = _run(f"{name}:op={layer}", monkeypatch)
    golden = _layers_of_twin(clean.tokens)[phase]
    assert torch.equal(faulty.outputs[phase][0], clean.outputs[phase][0])
    usual = _error(golden[1], clean.outputs[phase][1])
    assert not _error(golden[1], faulty.outputs[phase][1]) <= 2 * usual  # NaN is visible too
