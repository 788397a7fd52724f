"""Padding, positions, rotary frequencies and masks that are not golden's, in words of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from matching_truth import families
from torch import Tensor, nn

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import Origin

Table = list[list[int]]
PROMPT = [5, 11, 29, 41]
LEFT = {"input_ids": [[0, 0, *PROMPT]], "attention_mask": [[0, 0, 1, 1, 1, 1]]}
RIGHT = {"input_ids": [[*PROMPT, 0, 0]], "attention_mask": [[1, 1, 1, 1, 0, 0]]}
PLAIN = {"input_ids": [[5, 11, 29, 41, 17, 60]]}


def _captured(
    folder: Path,
    change: Callable[[nn.Module], None] | None = None,
    *,
    attention: str = "eager",
    operators: bool = False,
    **given: Table,
) -> Path:
    model = families.make("llama", attention=attention).eval()
    if change is not None:
        change(model)
    with torch.no_grad(), register_hook(model, DumpConfig(dump_path=folder, operators=operators)):
        model(**{name: torch.tensor(each) for name, each in given.items()}, use_cache=False)
    return folder


def _origin(golden: Path, mine: Path) -> Origin:
    (origin,) = compare(golden, mine, jobs=1).origins
    return origin


@pytest.mark.parametrize("places", [{}, {"position_ids": [[0, 0, 0, 1, 2, 3]]}])
@pytest.mark.parametrize("operators", [False, True])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_same_prompt_padded_on_the_other_side_accuses_no_code(
    tmp_path: Path, attention: str, operators: bool, places: dict[str, Table]
) -> None:
    how: Any = {"attention": attention, "operators": operators}
    golden = _captured(tmp_path / "golden", **LEFT, **places, **how)
    origin = _origin(golden, _captured(tmp_path / "mine", **RIGHT, **how))
    assert (origin.op, origin.kind, origin.certain) == ("root", "other input", True)
    assert origin.evidence.startswith(
        "inputs differ already: `input_ids` of `root` are the same tokens, padded on the right in "
        "mine and on the left in golden; "
    )


@pytest.mark.parametrize("operators", [False, True])
def test_a_wrong_embedding_is_found_beside_other_padding(tmp_path: Path, operators: bool) -> None:
    def wrong(model: nn.Module) -> None:
        with torch.no_grad():
            model.get_parameter("model.embed_tokens.weight").mul_(1.02)

    golden = _captured(tmp_path / "golden", operators=operators, **LEFT)
    origin = _origin(golden, _captured(tmp_path / "mine", wrong, operators=operators, **RIGHT))
    assert "embed_tokens" in origin.op


@pytest.mark.parametrize("operators", [False, True])
def test_positions_that_only_golden_is_given_are_told_with_both_numbers(
    tmp_path: Path, operators: bool
) -> None:
    places = {"position_ids": [[0, 1, 2, 4, 5, 6]]}
    golden = _captured(tmp_path / "golden", operators=operators, **PLAIN, **places)
    origin = _origin(golden, _captured(tmp_path / "mine", operators=operators, **PLAIN))
    assert (origin.op, origin.kind) == ("root", "other input")
    assert origin.evidence.startswith(
        "inputs differ already: `position_ids` of `root` are given only in golden, and mine counts "
        "them; "
    )
    assert origin.evidence.endswith(" is 3 instead of 4")


def test_positions_that_only_mine_is_given_are_no_tokens(tmp_path: Path) -> None:
    places = {"position_ids": [[0, 1, 2, 4, 5, 6]]}
    golden = _captured(tmp_path / "golden", operators=True, **PLAIN)
    origin = _origin(golden, _captured(tmp_path / "mine", operators=True, **PLAIN, **places))
    assert origin.kind == "other input"
    assert origin.evidence.endswith("is 4 instead of 3; both runs must get the same positions")


def _frequencies(model: nn.Module) -> list[Tensor]:
    rotary = [each for each in model.modules() if "Rotary" in type(each).__name__]
    return [each.get_buffer("inv_freq") for each in rotary]


def _other_base(model: nn.Module) -> None:
    for each in _frequencies(model):
        each.copy_(1e6 ** -(torch.arange(len(each)) / len(each)))


def _halved(model: nn.Module) -> None:
    for each in _frequencies(model):
        each.mul_(0.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            _other_base,
            "[1] is 0.177828 instead of 0.316228; they are powers of a rope theta of 1e+06 instead "
            "of 10000",
        ),
        (_halved, "[0] is 0.5 instead of 1"),
    ],
)
def test_rotary_frequencies_are_known_in_captures_of_operators_without_weights(
    tmp_path: Path, change: Callable[[nn.Module], None], words: str
) -> None:
    golden = _captured(tmp_path / "golden", operators=True, **PLAIN)
    origin = _origin(golden, _captured(tmp_path / "mine", change, operators=True, **PLAIN))
    module = "root.model.rotary_emb"
    assert (origin.op, origin.kind) == (module, "other weight")
    assert origin.evidence == (
        f"the rotary frequencies of `{module}` are not those of golden, {words}"
    )


def _hiding(model: nn.Module) -> None:
    """Let one attention hide a place that the model does not."""
    attention = model.get_submodule("model.layers.1.self_attn")
    right = attention.forward

    def forward(*args: Any, attention_mask: Tensor, **more: Any) -> Any:
        mask = attention_mask.clone()
        mask[..., 3, 1] = torch.finfo(mask.dtype).min
        return right(*args, attention_mask=mask, **more)

    attention.forward = forward  # type: ignore[method-assign]


@pytest.mark.parametrize("operators", [False, True])
def test_a_mask_of_one_layer_is_told_by_the_weights_of_its_attention(
    tmp_path: Path, operators: bool
) -> None:
    golden = _captured(tmp_path / "golden", operators=operators, **PLAIN)
    origin = _origin(golden, _captured(tmp_path / "mine", _hiding, operators=operators, **PLAIN))
    module = "root.model.layers.1.self_attn"
    assert (origin.op, origin.kind) == (module, "code between modules")
    assert origin.evidence.startswith(
        f"the code of `{module}`: the mask of `{module}` hides [3, 1] only in mine (query, key); "
    )


@pytest.mark.parametrize("operators", [False, True])
def test_a_mask_that_an_attention_does_not_add_is_the_fault_of_its_own_code(
    tmp_path: Path, operators: bool
) -> None:
    def captured(name: str, change: Callable[[nn.Module], None] | None = None) -> Path:
        model = families.make("t5", attention="eager").eval()
        if change is not None:
            change(model)
        config = DumpConfig(dump_path=tmp_path / name, operators=operators)
        with torch.no_grad(), register_hook(model, config):
            model(
                **{
                    key: torch.tensor([[5, 11, 29, 41]])
                    for key in ("input_ids", "decoder_input_ids")
                }
            )
        return tmp_path / name

    path = "decoder.block.0.layer.0.SelfAttention"

    def open_mask(model: nn.Module) -> None:
        attention: Any = model.get_submodule(path)
        right = attention.forward

        def forward(*args: Any, mask: Tensor, **more: Any) -> Any:
            return right(*args, mask=torch.zeros_like(mask), **more)

        attention.forward = forward

    origin = _origin(captured("golden"), captured("mine", open_mask))
    assert origin.op.startswith(f"root.{path}")
    assert origin.evidence.startswith(
        f"the code of `root.{path}`: the mask of `root.{path}` hides "
    )


def test_another_scale_is_no_mask_although_it_makes_weights_of_zero(tmp_path: Path) -> None:
    def sharp(model: nn.Module) -> None:
        attention = model.get_submodule("model.layers.1.self_attn")
        attention.scaling = 500.0  # type: ignore[assignment]

    golden = _captured(tmp_path / "golden", **PLAIN)
    origin = _origin(golden, _captured(tmp_path / "mine", sharp, **PLAIN))
    assert " hides " not in origin.evidence
    assert "`scaling`" in origin.evidence
