"""Modules of vLLM, as it was recorded, judged alone by the weights of the checkpoint it ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest
import torch
from matching_truth.recordings import DATA, unpack
from torch import Tensor

from ait_llm import open_dump
from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.golden.modules import Given, module_function
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.pipeline import opcheck

JOINED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj"} | {
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
}


def checkpoint(dump: Path) -> dict[str, Tensor]:
    """The weights that transformers ran with, under the names and joined as vLLM has them."""
    own: dict[str, Tensor] = {}
    for operation in open_dump(dump).operations():
        own |= {name: one.torch() for name, one in operation.parameters.items() if name not in own}
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in own.items():
        path, _, last = name.rpartition(".")
        above, _, module = path.rpartition(".")
        whole = f"{above}.{JOINED.get(module, module)}"
        whole = whole.replace(".mlp.gate", ".block_sparse_moe.gate") if module == "gate" else whole
        if last in ("weight", "bias"):
            parts.setdefault(f"{whole}.{last}", {})[module] = tensor
    made = {}
    for name, found in parts.items():
        order = [module for module in (*JOINED, *found) if module in found]
        made[name] = torch.cat([found[module] for module in dict.fromkeys(order)])
    made.setdefault("root.lm_head.weight", made["root.model.embed_tokens.weight"])
    return made


def rotary_table(operation_type: str, definition: dict[str, float]) -> Tensor:
    width = int(definition["rotary_dim"])
    frequencies = definition["base"] ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(
        torch.arange(definition["max_position_embeddings"]).float(), frequencies.float()
    )
    return torch.cat((angles.cos(), angles.sin()), -1)


def recorded(family: str, folder: Path, cache: Path) -> Path:
    """A recording of vLLM with the weights that its kernels had packed."""
    place = unpack(DATA / f"{family}.tar.xz", cache)
    dump = folder / "ait_dump"
    copytree(place / "vllm" / "ait_dump", dump)
    (process,) = dump.glob("torch_tensors/cpu_*")
    weights = checkpoint(place / "transformers" / "ait_dump")
    for operation in open_dump(dump).operations():
        if operation.type == "RotaryEmbedding":
            table = rotary_table(operation.type, dict(operation.definition))
            weights[f"{operation.name}.cos_sin_cache"] = table.to(torch.bfloat16)
    (process / "weights").mkdir()
    for name, tensor in weights.items():
        torch.save(tensor.clone(), process / "weights" / f"{name}.pth")
    return dump


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


def kinds(report: OpcheckReport, verdict: Verdict) -> Counter[str]:
    return Counter(item.op_type for item in report.items if item.verdict is verdict)


@pytest.mark.parametrize("family", ["llama", "qwen3", "mixtral", "gemma2"])
def test_what_vllm_computed_is_right_by_its_weights(
    family: str, tmp_path: Path, cache: Path
) -> None:
    report = opcheck(recorded(family, tmp_path, cache))
    right = kinds(report, Verdict.PASS)
    assert [item.reason for item in report.items if item.verdict is not Verdict.PASS] == []
    assert right >= Counter(QKVParallelLinear=6, RowParallelLinear=6, RotaryEmbedding=6)
    assert right >= Counter(LogitsProcessor=3, VocabParallelEmbedding=3)
    # This recording does not say how ranks share the experts, and has not their weights.
    experts = {"have experts of which the capture does not tell enough": 6}
    attention = {"have no golden operator: Attention": 6}
    assert report.unchecked == attention | (experts if family == "mixtral" else {})


def half_more_in_a_row(values: Tensor) -> Tensor:
    values = values.clone()
    values[1] *= 1.5
    return values


@pytest.mark.parametrize(
    ("module", "output"),
    [
        ("root.model.embed_tokens", "output"),
        ("root.model.layers.0.self_attn.qkv_proj", "output_0"),
        ("root.model.layers.1.self_attn.o_proj", "output_0"),
        ("root.model.layers.0.mlp.gate_up_proj", "output_0"),
        ("root.model.layers.0.mlp.act_fn", "output"),
        ("root.model.layers.0.input_layernorm", "output"),
        ("root.model.layers.0.post_attention_layernorm", "output_0"),
        ("root.model.layers.0.post_attention_layernorm", "output_1"),
        ("root.model.layers.0.self_attn.rotary_emb", "output_1"),
    ],
)
def test_the_module_of_vllm_that_is_wrong_is_the_only_one_named(
    module: str, output: str, tmp_path: Path, cache: Path
) -> None:
    dump = recorded("llama", tmp_path, cache)
    (path,) = dump.glob(f"torch_tensors/*/0/{module}/{output}.pth")
    values = torch.load(path, weights_only=True)
    path.unlink()
    torch.save(half_more_in_a_row(values), path)
    report = opcheck(dump)
    assert [i.op_id for i in report.items if i.verdict is Verdict.FAIL] == [f"{module}@0"]


def rotated(dump: Path, module: str, change: Callable[[Tensor], Tensor]) -> None:
    """Results of rotary positions as a kernel in float32 makes and then stores them."""
    (folder,) = dump.glob(f"torch_tensors/*/0/{module}")
    (table,) = dump.glob(f"torch_tensors/*/weights/{module}.cos_sin_cache.pth")
    positions = torch.load(folder / "input_0.pth", weights_only=True)
    cos, sin = torch.load(table, weights_only=True).float()[positions][:, None].chunk(2, -1)
    for place in (1, 2):
        x = torch.load(folder / f"input_{place}.pth", weights_only=True)
        one, two = x.float().view(len(x), -1, 2 * cos.shape[-1]).chunk(2, -1)
        made = torch.cat((one * cos - two * sin, two * cos + one * sin), -1).view(x.shape)
        path = folder / f"output_{place - 1}.pth"
        path.unlink()
        torch.save(change(made), path)


def cut(values: Tensor) -> Tensor:
    return (values.view(torch.int32) & ~0xFFFF).view(torch.float32).bfloat16()


def cut_upwards(values: Tensor) -> Tensor:
    return ((values.view(torch.int32) + 0xFFFF) & ~0xFFFF).view(torch.float32).bfloat16()


@pytest.mark.parametrize(
    ("change", "is_right"),
    [
        (cut, True),
        (Tensor.bfloat16, True),
        (cut_upwards, False),
        (lambda values: cut(values * 0.996), False),
        (lambda values: cut(cut(values).float() * 0.9999), False),
        (lambda values: cut(torch.where(values == values.max(), values * 1.01, values)), False),
    ],
    ids=["cut", "rounded", "upwards", "scaled", "twice", "one"],
)
def test_rotary_positions_may_be_cut_to_bfloat16(
    change: Callable[[Tensor], Tensor], is_right: bool, tmp_path: Path, cache: Path
) -> None:
    dump, module = recorded("llama", tmp_path, cache), "root.model.layers.0.self_attn.rotary_emb"
    rotated(dump, module, change)
    wrong = {i.op_id for i in opcheck(dump).items if i.verdict is Verdict.FAIL}
    assert wrong == (set() if is_right else {f"{module}@0"})


def test_weights_that_an_engine_packed_are_not_held_against_it(tmp_path: Path, cache: Path) -> None:
    dump = recorded("llama", tmp_path, cache)
    (path,) = dump.glob("torch_tensors/*/weights/root.model.layers.0.mlp.gate_up_proj.weight.pth")
    torch.save(torch.empty(0), path)
    report = opcheck(dump)
    assert "hold weights that their engine keeps in a form of its own" in report.unchecked
    assert report.exit_code() == 0


def linear(kind: str, **plain: object) -> Given:
    known: dict[str, object] = {
        "quant_method": "UnquantizedLinearMethod",
        "input_size": 8,
        "output_size": 4,
        "has_bias": True,
        "tp_size": 1,
        "tp_rank": 0,
    }
    weights = {"weight": (4, 8), "bias": (4,)}
    return Given(kind, known | plain, ("0",), weights, ((2, 4),))


@pytest.mark.parametrize(
    "unknown",
    [
        linear("QKVParallelLinear", quant_method="Fp8LinearMethod"),
        linear("RowParallelLinear", tp_size=2, reduce_results=True, input_is_parallel=True),
        linear("RowParallelLinear", tp_size=2, reduce_results=False, input_is_parallel=False),
        linear("ColumnParallelLinear", tp_size=2, gather_output=True),
        linear("GateLinear", out_dtype="float32"),
        linear("ReplicatedLinear", output_size=8),
        linear("ReplicatedLinear", has_bias=False),
    ],
    ids=lambda each: each.type,
)
def test_what_ranks_make_together_or_is_quantised_has_no_definition(unknown: Given) -> None:
    assert module_function(unknown) is None


def test_only_the_first_rank_adds_the_bias_of_rows_that_ranks_share() -> None:
    tensors = {"0": torch.ones(2, 8), "weight": torch.ones(4, 8), "bias": torch.ones(4)}
    found = []
    for rank in (0, 1):
        compute = module_function(
            linear(
                "RowParallelLinear",
                tp_size=2,
                tp_rank=rank,
                reduce_results=False,
                input_is_parallel=True,
            )
        )
        assert compute is not None
        found.append(float(compute(tensors)[0, 0]))
    assert found == [9.0, 8.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rounds", [True, False], ids=["sum rounded first", "sum kept"])
@pytest.mark.parametrize("kind", ["RMSNorm", "GemmaRMSNorm"])
def test_a_norm_of_a_sum_may_go_on_with_all_of_the_sum(
    kind: str, rounds: bool, dtype: torch.dtype
) -> None:
    """The kernel of GPUs rounds the sum before it goes on, the native one does not."""
    from ait_llm.judge.outputs import Produced, judge_outputs
    from ait_llm.judge.standards import standards
    from ait_llm.opcheck.golden.functions import golden_function
    from ait_llm.opcheck.outcome import Checked

    torch.manual_seed(11)
    plain = {"hidden_size": 256, "variance_epsilon": 1e-6}
    given = Given(kind, plain, ("0", "1"), {"weight": (256,)}, ((8, 256), (8, 256)))
    compute = module_function(given)
    assert compute is not None
    x, residual, weight = (torch.randn(*shape).to(dtype) for shape in ((8, 256), (8, 256), (256,)))
    total = x.float() + residual.float()
    second = total if kind == "GemmaRMSNorm" and dtype == torch.float16 else total.to(dtype)
    wide = second.float() if rounds else total
    scale = weight.float() + (kind == "GemmaRMSNorm")
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    golden = golden_function(
        kind, lambda t: compute(dict(zip(("0", "1", "weight"), t, strict=True)))
    )

    def verdicts(change: Callable[[Tensor], Tensor]) -> list[Verdict]:
        made = {0: change(normed * scale).to(dtype), 1: second}
        judged = judge_outputs(
            golden,
            [x, residual, weight],
            {},
            Produced(made, {}),
            standards.get("contract"),
            Checked("norm", kind, Verdict.SKIPPED),
        )
        return [item.checked.verdict for item in judged]

    assert verdicts(lambda each: each) == [Verdict.PASS, Verdict.PASS]
    assert verdicts(lambda each: each * 1.03) == [Verdict.FAIL, Verdict.PASS]
