"""Which difference between two modules matters."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from healthy_runs.any_family import model_of
from torch import Tensor, nn

from ait_llm import tokens, transplant
from ait_llm.errors import FormatError, UsageError
from tests.support.json_outputs import check

IDS = torch.tensor([[11, 47, 5, 88, 29, 63, 17, 40, 22], [31, 6, 70, 9, 82, 14, 55, 90, 2]])


def decoder(attention: str = "eager", dtype: torch.dtype = torch.float32) -> Any:
    return model_of("CAUSAL_LM", "llama", attention, dtype)


def test_of_two_bugs_both_are_needed_and_the_larger_one_is_first() -> None:
    mine = decoder()
    mine.model.layers[0].mlp.down_proj.weight.data *= 1.02
    mine.model.layers[1].self_attn.scaling *= 1.5
    result = transplant(decoder(), mine, IDS)
    check("transplant", result.as_dict())
    assert result.status == "found"
    assert [each.op for each in result.needed] == [
        "root.model.layers.1.self_attn.aten.mul.Tensor",
        "root.model.layers.0.mlp.down_proj.aten.mm.default",
    ]
    larger, smaller = result.needed
    assert larger.introduced == pytest.approx(0.5)
    assert smaller.introduced == pytest.approx(0.02, rel=1e-3)
    assert (larger.share or 0) > (smaller.share or 1)
    assert result.after is not None
    assert result.after.error == 0
    assert result.runs <= 2 * math.log2(len(result.suspects)) + 8


def test_a_bug_is_found_through_another_attention_in_16_bits() -> None:
    mine = decoder("sdpa", torch.bfloat16)
    mine.model.layers[0].input_layernorm.weight.data *= 1.3
    result = transplant(decoder("eager", torch.bfloat16), mine, IDS)
    assert [each.op for each in result.needed] == [
        "root.model.layers.0.input_layernorm.aten.mul.Tensor"
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_another_attention_is_no_difference(dtype: torch.dtype) -> None:
    result = transplant(decoder("eager", dtype), decoder("sdpa", dtype), IDS)
    assert result.status == "equal"
    assert result
    assert result.needed == []


def test_a_difference_without_consequences_is_not_needed() -> None:
    class Net(nn.Module):
        def __init__(self, *, other: bool) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
            self.unused, self._factor = nn.Linear(8, 8), 3.0 if other else 1.0

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            unused: Tensor = self.unused(x) * self._factor
            result: Tensor = self.second(x)
            return result + 0 * unused

    golden = Net(other=False)
    mine = Net(other=True)
    mine.load_state_dict(golden.state_dict())
    result = transplant(golden, mine, torch.arange(8.0)[None])
    assert result.status == "equal"
    assert not result.needed


def test_a_value_that_is_not_finite_gets_goldens() -> None:
    class Broken(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            result = super().forward(input)
            return torch.where(result > 0, result * math.inf, result)

    golden = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4))
    mine = copy.deepcopy(golden)
    mine[1].__class__ = Broken
    result = transplant(golden, mine, torch.arange(8.0)[None])
    (needed,) = result.needed
    assert needed.op.startswith("root.1")
    assert needed.introduced == math.inf
    assert result.as_dict()["suspects"][0]["introduced"] is None


def test_a_model_that_reads_another_token_is_healed_where_the_token_is_made() -> None:
    class Around(nn.Module):
        def __init__(self, model: nn.Module, token: int) -> None:
            super().__init__()
            self.model, self._token = model, token

        def forward(self, ids: Tensor) -> Any:
            return self.model(torch.where(ids == 5, self._token, ids))

    model = decoder()
    result = transplant(Around(model, 5), Around(model, 6), IDS)
    (needed,) = result.needed
    assert needed.op in ("root.aten.scalar_tensor.default", "root.aten.where.self")
    assert needed.introduced == math.inf  # of whole numbers one is as wrong as another
    assert result.after is not None
    assert (result.after.error, result.after.rows) == (0, IDS.numel())
    assert result.notes == ()


def test_every_step_of_generate_is_healed() -> None:
    golden, mine = decoder(), decoder()
    for model in (golden, mine):
        model.generation_config.update(eos_token_id=None, pad_token_id=0)
    mine.model.layers[1].mlp.up_proj.weight.data *= 3.0
    few = {"max_new_tokens": 3, "do_sample": False}
    result = transplant(golden.generate, mine.generate, IDS, **few)
    (needed,) = result.needed
    assert needed.op == "root.model.layers.1.mlp.up_proj.aten.mm.default"
    assert needed.steps == (0, 1, 2)


def test_modules_are_named_without_operators(tmp_path: Path) -> None:
    mine = decoder()
    mine.model.layers[1].mlp.gate_proj.weight.data *= 1.4
    result = transplant(decoder(), mine, IDS, operators=False, folder=tmp_path)
    assert [each.op for each in result.needed] == ["root.model.layers.1.mlp.gate_proj"]
    assert (tmp_path / "golden" / "ait_dump").is_dir()


def test_a_search_that_may_not_run_often_enough_says_so() -> None:
    mine = decoder()
    for layer in mine.model.layers:
        layer.mlp.down_proj.weight.data *= 1.2
        layer.self_attn.o_proj.weight.data *= 1.2
    result = transplant(decoder(), mine, IDS, runs=4)
    assert result.status == "undecided"
    assert result.reason == "the smallest set that heals is not found in 4 runs"
    assert result.runs == 4


def test_too_few_runs_to_know_the_suspects_are_told() -> None:
    mine = decoder()
    mine.model.layers[0].mlp.down_proj.weight.data *= 1.2
    result = transplant(decoder(), mine, IDS, runs=1)
    assert (result.status, result.runs) == ("undecided", 1)
    assert result.reason == "its suspects are not known in so few runs"


def test_values_of_compiled_graphs_cannot_be_changed_and_are_told() -> None:
    golden = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4))
    mine = copy.deepcopy(golden)
    mine[1].weight.data *= 1.5
    result = transplant(golden, torch.compile(mine, backend="eager"), torch.arange(8.0)[None])
    assert any("compiled graph" in note for note in result.notes)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(UsageError, match="a module or function is needed, not int"):
        transplant(3, nn.Linear(2, 2), torch.zeros(1, 2))  # type: ignore[arg-type]


def test_a_damaged_plan_is_refused_with_its_name(tmp_path: Path) -> None:
    from ait_llm.dump.patches import Patches

    plan = tmp_path / "plan.json"
    for text in ("{", "[]", '{"places": {"a": 1}, "recorded": null}', '{"places": {}}'):
        plan.write_text(text)
        with pytest.raises(FormatError, match=r"plan\.json: is no plan of patches"):
            Patches.read(plan)


class Batching(nn.Module):
    """Has other rows in each pass after the first, as an engine that batches requests by time."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.passes = 0

    def forward(self, ids: Tensor) -> Any:
        self.passes += 1
        return self.model(torch.cat([ids, *[ids[:1]] * (self.passes - 1)]))


def test_a_program_whose_passes_differ_each_time_is_not_judged() -> None:
    mine = decoder()
    mine.model.layers[0].mlp.down_proj.weight.data *= 1.5
    result = transplant(Batching(decoder()), Batching(mine), IDS)
    assert (result.status, result.needed) == ("undecided", [])
    assert "mine has other passes each time it runs" in result.reason
    told = tokens(Batching(decoder()), Batching(mine), IDS)
    assert {each.cause for each in told.flips} == {"undecided"}
    assert all("other passes each time" in each.reason for each in told.flips)
    assert told.code == 3
