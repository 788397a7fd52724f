"""Routers and joined experts of ``transformers``, judged alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ait_llm import DumpConfig, register_hook
from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.pipeline import opcheck

transformers = pytest.importorskip("transformers")
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SIZES = {
    "vocab_size": 32,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}
MANY = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24}
LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
}
GROUPS = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 0,
    "n_group": 4,
    "topk_group": 2,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Mixtral": {"num_local_experts": 8, "num_experts_per_tok": 3},
    "Qwen3Moe": {**MANY, "norm_topk_prob": False},
    "DeepseekV3": {**LATENT, **GROUPS},
    "GptOss": {"num_local_experts": 8, "num_experts_per_tok": 3, "head_dim": 16},
    "GraniteMoe": {"num_local_experts": 8, "num_experts_per_tok": 3},
}


def captured(family: str, dtype: torch.dtype, folder: Path, experts: str = "eager") -> Path:
    torch.manual_seed(5)
    config = getattr(transformers, f"{family}Config")(**SIZES, **FAMILIES[family])
    config._experts_implementation = experts
    model = getattr(transformers, f"{family}ForCausalLM")(config).to(dtype).eval()
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if tensor.dim() > 1 or "e_score" in name or "bias" in name:
                tensor.normal_(0, 0.2)
    with torch.no_grad(), register_hook(model, DumpConfig(dump_path=folder, weights=True)):
        model(torch.arange(18).view(2, 9))
    return folder / "ait_dump"


def change(dump: Path, kind: str, output: str, how: Callable[[Tensor], Tensor]) -> None:
    (path,) = dump.glob(f"torch_tensors/*/0/*{kind}/{output}.pth")
    values = torch.load(path, weights_only=True)
    path.unlink()
    torch.save(how(values.clone()), path)


def failed(report: OpcheckReport) -> set[str]:
    return {item.op_type for item in report.items if item.verdict is Verdict.FAIL}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("experts", ["eager", "grouped_mm"])
@pytest.mark.parametrize("family", FAMILIES)
def test_routers_and_experts_are_right_by_their_weights(
    family: str, experts: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    report = opcheck(captured(family, dtype, tmp_path, experts))
    assert [item.reason for item in report.items if item.verdict is not Verdict.PASS] == []
    kinds = {item.op_type.removeprefix(family) for item in report.items}
    assert kinds & {"TopKRouter", "TopkRouter"}
    assert "Experts" in kinds
    assert report.unchecked == {}


def another_expert(taken: Tensor) -> Tensor:
    """One token takes an expert that is none of its best."""
    others = set(range(8)) - set(taken[4].tolist())
    taken[4, 0] = max(others)
    return taken


def one_row(values: Tensor) -> Tensor:
    values[3] *= 1.5
    return values


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("module", "output", "how"),
    [
        ("gate", "output_0", one_row),
        ("gate", "output_1", one_row),
        ("gate", "output_2", another_expert),
        ("experts", "output", one_row),
    ],
)
def test_a_wrong_router_or_expert_is_the_only_one_named(
    family: str,
    module: str,
    output: str,
    how: Callable[[Tensor], Tensor],
    dtype: torch.dtype,
    tmp_path: Path,
) -> None:
    dump = captured(family, dtype, tmp_path)
    name = "router" if family in ("GptOss", "GraniteMoe") and module == "gate" else module
    change(dump, f".{name}", output, how)
    word = "outer" if module == "gate" else "xperts"
    (kind,) = failed(opcheck(dump))
    assert kind.endswith(word)


def test_any_order_of_the_experts_is_right_if_their_shares_follow(tmp_path: Path) -> None:
    dump = captured("Mixtral", torch.float32, tmp_path)
    for output in ("output_1", "output_2"):
        change(dump, ".gate", output, lambda values: values.flip(-1))
    assert failed(opcheck(dump)) == set()


def test_probabilities_in_the_place_of_logits_are_those_of_the_logits(tmp_path: Path) -> None:
    """Releases of transformers before 5.1 return them."""
    dump = captured("Mixtral", torch.float32, tmp_path)
    change(dump, ".gate", "output_0", lambda values: values.softmax(-1))
    assert failed(opcheck(dump)) == set()


def test_a_wrong_activation_is_named_and_not_the_experts_around_it(tmp_path: Path) -> None:
    dump = captured("Mixtral", torch.float32, tmp_path, "grouped_mm")
    change(dump, ".experts", "output", one_row)
    change(dump, ".act_fn", "output", one_row)
    report = opcheck(dump)
    assert failed(report) == {"SiLUActivation"}
    (experts,) = (item for item in report.items if item.op_type == "MixtralExperts")
    assert "which is a part of it, is wrong" in experts.reason


def test_experts_with_an_unknown_activation_are_not_judged(tmp_path: Path) -> None:
    dump = captured("Mixtral", torch.float32, tmp_path)
    (tree,) = dump.glob("torch_tensors/*/model_tree.json")
    tree.write_text(tree.read_text().replace('"SiLUActivation"', '"MyActivation"'))
    report = opcheck(dump)
    assert not any(item.op_type == "MixtralExperts" for item in report.items)
