"""What two modules think of their tokens, and why they choose differently."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from healthy_runs.any_family import model_of
from torch import Tensor, nn

from ait_llm import tokens
from ait_llm.decisions.result import Decision, TokensResult
from ait_llm.errors import UsageError
from tests.support.json_outputs import check

IDS = torch.tensor([[11, 47, 5, 88, 29, 63, 17, 40, 22], [31, 6, 70, 9, 82, 14, 55, 90, 2]])


def decoder(attention: str = "eager", dtype: torch.dtype = torch.float32) -> Any:
    model: Any = model_of("CAUSAL_LM", "llama", attention, dtype)
    model.generation_config.update(eos_token_id=None, pad_token_id=0)
    return model


def logits_of(model: Any) -> Tensor:
    with torch.no_grad():
        result: Tensor = model(IDS).logits.double()
    return result


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=str)
def wrong(request: pytest.FixtureRequest) -> tuple[Any, Any, TokensResult]:
    golden, mine = decoder(dtype=request.param), decoder("sdpa", request.param)
    mine.model.layers[0].mlp.up_proj.weight.data *= 3.0
    return golden, mine, tokens(golden, mine, IDS)


def test_margins_probabilities_and_drift_are_those_of_torch(
    wrong: tuple[Any, Any, TokensResult],
) -> None:
    golden, mine = (logits_of(model) for model in wrong[:2])
    told, thought = golden.log_softmax(-1), mine.log_softmax(-1)
    assert len(wrong[2].decisions) == IDS.numel()
    for each in wrong[2].decisions:
        row, place = each.place
        assert each.golden == int(golden[row, place].argmax())
        assert each.mine == int(mine[row, place].argmax())
        if each.flips:
            pair = golden[row, place, each.golden] - golden[row, place, each.mine]
            assert each.golden_margin == pytest.approx(float(pair), abs=1e-6)
        drift = thought[row, place, each.golden] - told[row, place, each.golden]
        assert each.drift == pytest.approx(float(drift), abs=1e-6)
        assert each.mine_probability == pytest.approx(float(thought[row, place].exp()[each.golden]))


def explained(result: TokensResult) -> list[Decision]:
    return [each for each in result.flips if each.explained is not None]


def test_the_first_other_token_of_each_request_is_by_the_difference(
    wrong: tuple[Any, Any, TokensResult],
) -> None:
    result = wrong[2]
    check("tokens", result.as_dict())
    assert {each.place[0] for each in explained(result)} == {0, 1}
    assert all(each.cause == "difference" for each in result.flips)
    assert not result
    assert result.code == 1


def test_the_parts_add_up_to_the_change_of_the_margin(wrong: tuple[Any, Any, TokensResult]) -> None:
    golden, _, result = wrong
    within = 0.1 if golden.dtype is torch.float32 else 0.3
    for each in explained(result):
        assert each.explained == pytest.approx(each.change, rel=within)
        assert each.explained == pytest.approx(sum(part.change for part in each.contributions))


def test_the_largest_part_is_of_the_module_that_is_wrong(
    wrong: tuple[Any, Any, TokensResult],
) -> None:
    for each in explained(wrong[2]):
        assert each.contributions[0].op == "root.model.layers.0.mlp.up_proj"
        assert not each.contributions[0].within_rounding


def test_an_error_found_where_a_value_is_returned_is_not_counted_twice() -> None:
    mine = decoder()  # its attention also returns the weights, which are wrong as well
    mine.model.layers[1].self_attn.scaling *= 4.0
    result = tokens(decoder(), mine, IDS)
    (first, *_) = [each for each in result.decisions if each.explained is not None]
    assert first.explained == pytest.approx(first.change, rel=0.01)
    assert first.contributions[0].op == "root.model.layers.1.self_attn.o_proj"
    assert abs(first.contributions[1].change) < 1e-3 * abs(first.change)


def test_tokens_that_another_type_and_attention_change_are_within_rounding() -> None:
    models = [
        model_of("CAUSAL_LM", "gpt2", attention, dtype)
        for attention, dtype in (("eager", torch.float32), ("sdpa", torch.bfloat16))
    ]
    result = tokens(*models, torch.arange(0, 48).reshape(2, 24) * 37 % 96)
    assert len(result.flips) >= 1
    assert {each.cause for each in result.flips} == {"rounding"}
    assert result.code == 0


def test_a_choice_between_equals_that_falls_otherwise_is_rounding() -> None:
    class Tied(nn.Module):
        def __init__(self, dtype: torch.dtype) -> None:
            super().__init__()
            drawn = torch.Generator().manual_seed(0)
            self.embed, self.head = nn.Embedding(16, 64), nn.Linear(64, 16, bias=False)
            self.embed.weight.data = torch.randn(16, 64, generator=drawn)
            weight = torch.randn(16, 64, generator=drawn)
            weight[1::2] = weight[::2] * (1 + 1e-4)
            self.head.weight.data = weight
            self.to(dtype)

        def forward(self, ids: Tensor) -> dict[str, Tensor]:
            return {"logits": self.head(self.embed(ids))}

    golden, mine = Tied(torch.float32), Tied(torch.bfloat16)
    result = tokens(golden, mine, torch.arange(16)[None])
    assert result.flips
    assert {each.cause for each in result.flips} == {"rounding"}
    assert result


def test_of_two_equal_logits_the_margin_is_between_different_tokens() -> None:
    class Equal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding.from_pretrained(torch.tensor([[2.0, 5.0, 5.0, 1.0]]))

        def forward(self, ids: Tensor) -> dict[str, Tensor]:
            return {"logits": self.embed(ids)}

    (found,) = tokens(Equal(), Equal(), torch.zeros(1, 1, dtype=torch.int64)).decisions
    assert (found.golden, found.mine) == (1, 1)
    assert found.golden_margin == 0
    other = Equal()
    other.embed = nn.Embedding.from_pretrained(torch.tensor([[2.0, 5.0, 4.5, 1.0]]))
    (found,) = tokens(other, Equal(), torch.zeros(1, 1, dtype=torch.int64)).decisions
    assert (found.golden_margin, found.mine_margin) == (0.5, 0)
    (found,) = tokens(Equal(), other, torch.zeros(1, 1, dtype=torch.int64)).decisions
    assert (found.golden_margin, found.mine_margin) == (0, 0.5)  # to the other 5, not to itself


def test_errors_of_earlier_steps_reach_a_later_token_through_the_cache() -> None:
    golden, mine = decoder(), decoder()
    mine.model.layers[0].mlp.up_proj.weight.data *= 3.0
    result = tokens(golden.generate, mine.generate, IDS, max_new_tokens=4, do_sample=False)
    found = explained(result)
    assert found
    for each in found:
        assert each.explained == pytest.approx(each.change, rel=0.1)


def test_other_settings_of_the_choice_are_told() -> None:
    class Other:
        """``generate`` with a penalty."""

        def __init__(self, model: Any) -> None:
            self.__self__ = model

        def __call__(self, ids: Tensor, **few: Any) -> Any:
            return self.__self__.generate(ids, repetition_penalty=1.5, **few)

    model = decoder()
    few = {"max_new_tokens": 2, "do_sample": False}
    result = tokens(model.generate, Other(model), IDS, **few)
    found = {each.name: (each.golden, each.mine) for each in result.settings}
    assert found["repetition_penalty"] == ("1.0", "1.5")
    assert result.code == 1


def test_parts_of_a_model_in_inference_mode_are_measured_and_that_is_said(tmp_path: Path) -> None:
    class Inferring(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        @torch.inference_mode()
        def forward(self, ids: Tensor) -> Any:
            return self.model(ids)

    golden, mine = decoder(), decoder()
    mine.model.layers[0].mlp.up_proj.weight.data *= 3.0
    result = tokens(Inferring(golden), Inferring(mine), IDS, folder=tmp_path)
    assert {each.cause for each in result.flips} == {"difference"}
    for each in explained(result):
        largest = each.contributions[0]
        assert largest.measured
        assert "layers.0.mlp.up_proj" in largest.op
        assert each.explained == pytest.approx(each.change, rel=1e-6)
    assert explained(result)
    assert any("there are no gradients" in note for note in result.notes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_parts_add_up_where_a_difference_makes_a_router_choose_other_experts(
    dtype: torch.dtype,
) -> None:
    golden, mine = (model_of("CAUSAL_LM", "mixtral", "eager", dtype) for _ in range(2))
    mine.model.layers[0].self_attn.o_proj.weight.data *= 2.5
    result = tokens(golden, mine, IDS)
    assert explained(result)
    for each in explained(result):
        assert each.explained == pytest.approx(each.change, rel=0.06)


def test_programs_without_logits_are_not_judged() -> None:
    net = nn.Sequential(nn.Linear(4, 4))
    result = tokens(net, net, torch.zeros(1, 4))
    assert result.status == "undecided"
    assert "no logits" in result.reason
    assert result.code == 3


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(UsageError, match="a module or function is needed"):
        tokens(3, decoder(), IDS)  # type: ignore[arg-type]


@pytest.mark.parametrize("mask", [-math.inf, torch.finfo(torch.float32).min])
def test_tokens_that_both_programs_mask_change_no_number(mask: float) -> None:
    class Padded(nn.Module):
        def __init__(self, model: Any, scale: float) -> None:
            super().__init__()
            self.model, self.scale = model, scale

        def forward(self, ids: Tensor) -> dict[str, Tensor]:
            logits = self.model(ids).logits * self.scale
            return {"logits": nn.functional.pad(logits, (0, 8), value=mask)}

    result = tokens(Padded(decoder(), 1), Padded(decoder(), 1.25), IDS)
    plain = decoder()(IDS).logits.double()
    told, thought = (each.log_softmax(-1) for each in (plain, 1.25 * plain))
    kl = nn.functional.kl_div(thought, told, reduction="none", log_target=True).sum(-1)
    assert [each.kl for each in result.decisions] == pytest.approx(kl.flatten().tolist(), rel=1e-4)
    assert not result.flips
