"""Small models of the field on both sides, with one set of random weights each.

The torch side is the implementation of Hugging Face Transformers, captured by our hooks; the ATB
side is a :class:`Decoder`. Both dumps are written to disk and read back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.dumps import AtbDump
from ait_llm.program.one_pass import Pass
from ait_llm.program.passes import passes_of
from ait_llm.topology import read_topology
from tests.match.programs.atb_program import AtbProgram, float16
from tests.match.programs.decoder import Decoder, Layer, Linear, Shape, rotary_tables

HIDDEN, HEADS, KV_HEADS, DIM, INNER, VOCAB = 64, 4, 2, 16, 96, 100
LENGTHS = (7, 4)
_SIZES = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "vocab_size": VOCAB,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "attn_implementation": "eager",
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 1.0,
    },
}


@dataclass(frozen=True)
class Family:
    """A kind of model.

    Attributes:
        make: the torch side.
        shape: of the ATB side.
        layer: weights of a layer in the form of the ATB side, from the state dict.
        names: of embedding, final norm and output projection in the state dict.
    """

    make: Callable[[], nn.Module]
    shape: Shape
    layer: Callable[[Mapping[str, Tensor], int], Layer]
    names: tuple[str, str, str] = ("model.embed_tokens", "model.norm", "lm_head")


@dataclass(frozen=True)
class Runs:
    """One forward pass of both sides."""

    torch: Pass
    atb: Pass


def random_weights(model: nn.Module, seed: int = 0) -> nn.Module:
    """Weights large enough that every operation shows in the result."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        scale = 0.3 if parameter.dim() < 2 else parameter.shape[-1] ** -0.5
        values = torch.randn(parameter.shape, generator=generator) * scale
        parameter.data = values + 1 if "norm" in name and "weight" in name else values
    return model.half().eval().requires_grad_(False)


def sequences() -> list[Tensor]:
    """Token ids of two prompts of different lengths."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(1, VOCAB, (length,), generator=generator) for length in LENGTHS]


def capture_torch(
    model: nn.Module,
    folder: Path,
    *,
    padding: str = "right",
    operators: bool = False,
    weights: bool = False,
) -> Pass:
    """A forward pass over the padded batch."""
    prompts = sequences()
    longest = max(LENGTHS)
    ids = torch.zeros(len(prompts), longest, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        place = slice(0, len(prompt)) if padding == "right" else slice(longest - len(prompt), None)
        ids[row, place] = prompt
        mask[row, place] = 1
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    config = DumpConfig(str(folder), operators=operators, weights=weights)
    with torch.no_grad(), register_hook(model, config):
        model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False)
    return read_torch(folder)


def capture_atb(
    family: Family,
    model: nn.Module,
    folder: Path,
    *,
    topology: bool = True,
    inputs_before: bool = True,
) -> Pass:
    """A prefill of the packed prompts."""
    state = {name: float16(tensor) for name, tensor in model.state_dict().items()}
    program = AtbProgram(folder, topology=topology, inputs_before=inputs_before)
    interleaved = family.shape.rope != 2
    tables = rotary_tables(family.shape.dim, 32, interleaved=interleaved)
    layers = [family.layer(state, number) for number in range(len(_layers_of(model)))]
    embedding, norm, head = family.names
    Decoder(program, family.shape, tables).prefill(
        sequences(),
        state[f"{embedding}.weight"],
        layers,
        _norm(state, norm),
        state[f"{head}.weight"],
        state.get(f"{head}.bias"),
    )
    return read_atb(folder)


def read_torch(folder: Path) -> Pass:
    """The only pass of a dump, with its weights."""
    dump = open_dump(folder)
    (run,) = passes_of(dump, dump.processes[0])
    return run


def read_atb(folder: Path) -> Pass:
    """The only pass of a dump."""
    dump = open_dump(folder)
    operations = list(dump.operations(step=0))
    graphs = {file.name: read_topology(file.path) for file in dump.layers}
    return Pass("atb", 0, operations[0].pid, 0, operations, graphs=graphs, traits=AtbDump.traits)


def capture(family: Family, folder: Path, **options: Any) -> Runs:
    """Both sides of a family."""
    model = random_weights(family.make())
    theirs = {
        key: options.pop(key) for key in ("padding", "operators", "weights") if key in options
    }
    return Runs(
        capture_torch(model, folder / "golden", **theirs),
        capture_atb(family, model, folder / "mine", **options),
    )


def _layers_of(model: nn.Module) -> nn.ModuleList:
    found = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return found[0]


def _norm(state: Mapping[str, Tensor], name: str) -> tuple[Tensor, ...]:
    bias = state.get(f"{name}.bias")
    return (state[f"{name}.weight"],) if bias is None else (state[f"{name}.weight"], bias)


def _linear(state: Mapping[str, Tensor], *names: str) -> Linear:
    """One projection, or several packed into one."""
    weight = torch.cat([state[f"{name}.weight"] for name in names])
    if f"{names[0]}.bias" not in state:
        return weight, None
    return weight, torch.cat([state[f"{name}.bias"] for name in names])


def _llama_layer(state: Mapping[str, Tensor], number: int, *, packed: bool = True) -> Layer:
    prefix = f"model.layers.{number}"
    qkv = [f"{prefix}.self_attn.{part}_proj" for part in "qkv"]
    gate_up = [f"{prefix}.mlp.{part}_proj" for part in ("gate", "up")]
    q_norm = state.get(f"{prefix}.self_attn.q_norm.weight")
    return Layer(
        norm1=_norm(state, f"{prefix}.input_layernorm"),
        norm2=_norm(state, f"{prefix}.post_attention_layernorm"),
        attention=[_linear(state, *qkv)] if packed else [_linear(state, name) for name in qkv],
        out=_linear(state, f"{prefix}.self_attn.o_proj"),
        into=[_linear(state, *gate_up)] if packed else [_linear(state, name) for name in gate_up],
        down=_linear(state, f"{prefix}.mlp.down_proj"),
        q_norm=q_norm,
        k_norm=state.get(f"{prefix}.self_attn.k_norm.weight"),
    )


def _packed_layer(state: Mapping[str, Tensor], number: int) -> Layer:
    """Packed on the torch side too."""
    prefix = f"model.layers.{number}"
    return Layer(
        norm1=_norm(state, f"{prefix}.input_layernorm"),
        norm2=_norm(state, f"{prefix}.post_attention_layernorm"),
        attention=[_linear(state, f"{prefix}.self_attn.qkv_proj")],
        out=_linear(state, f"{prefix}.self_attn.o_proj"),
        into=[_linear(state, f"{prefix}.mlp.gate_up_proj")],
        down=_linear(state, f"{prefix}.mlp.down_proj"),
    )


def _glm_layer(state: Mapping[str, Tensor], number: int) -> Layer:
    prefix = f"model.layers.{number}"
    return Layer(
        norm1=_norm(state, f"{prefix}.input_layernorm"),
        norm2=_norm(state, f"{prefix}.post_attention_layernorm"),
        attention=[_linear(state, *(f"{prefix}.self_attn.{part}_proj" for part in "qkv"))],
        out=_linear(state, f"{prefix}.self_attn.o_proj"),
        into=[_linear(state, f"{prefix}.mlp.gate_up_proj")],
        down=_linear(state, f"{prefix}.mlp.down_proj"),
    )


def _mixtral_layer(state: Mapping[str, Tensor], number: int) -> Layer:
    prefix = f"model.layers.{number}"
    into = state[f"{prefix}.mlp.experts.gate_up_proj"]
    down = state[f"{prefix}.mlp.experts.down_proj"]
    return Layer(
        norm1=_norm(state, f"{prefix}.input_layernorm"),
        norm2=_norm(state, f"{prefix}.post_attention_layernorm"),
        attention=[_linear(state, *(f"{prefix}.self_attn.{part}_proj" for part in "qkv"))],
        out=_linear(state, f"{prefix}.self_attn.o_proj"),
        router=state[f"{prefix}.mlp.gate.weight"],
        experts=list(zip(into, down, strict=True)),
    )


def _mixed_layer(state: Mapping[str, Tensor], number: int) -> Layer:
    """Dense or with experts, as the state dict has it."""
    if f"model.layers.{number}.mlp.experts.gate_up_proj" not in state:
        return _llama_layer(state, number)
    prefix = f"model.layers.{number}.self_attn"
    return replace(
        _mixtral_layer(state, number),
        q_norm=state[f"{prefix}.q_norm.weight"],
        k_norm=state[f"{prefix}.k_norm.weight"],
    )


def _neox_layer(state: Mapping[str, Tensor], number: int) -> Layer:
    """Torch interleaves q, k and v of each head; engines on ATB take them apart."""
    prefix = f"gpt_neox.layers.{number}"
    weight, bias = _linear(state, f"{prefix}.attention.query_key_value")
    assert bias is not None
    apart = torch.arange(3 * HIDDEN).reshape(HEADS, 3, DIM).transpose(0, 1).reshape(-1)
    return Layer(
        norm1=_norm(state, f"{prefix}.input_layernorm"),
        norm2=_norm(state, f"{prefix}.post_attention_layernorm"),
        attention=[(weight[apart].contiguous(), bias[apart].contiguous())],
        out=_linear(state, f"{prefix}.attention.dense"),
        into=[_linear(state, f"{prefix}.mlp.dense_h_to_4h")],
        down=_linear(state, f"{prefix}.mlp.dense_4h_to_h"),
        gated=False,
    )


def _phi_layer(state: Mapping[str, Tensor], number: int) -> Layer:
    """Attention and MLP read the same norm."""
    prefix = f"model.layers.{number}"
    norm = _norm(state, f"{prefix}.input_layernorm")
    return Layer(
        norm1=norm,
        norm2=norm,
        attention=[_linear(state, *(f"{prefix}.self_attn.{part}_proj" for part in "qkv"))],
        out=_linear(state, f"{prefix}.self_attn.dense"),
        into=[_linear(state, f"{prefix}.mlp.fc1")],
        down=_linear(state, f"{prefix}.mlp.fc2"),
        gated=False,
    )


def _make(kind: str, **sizes: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        config = getattr(transformers, f"{kind}Config")(**_SIZES | sizes)
        for suffix in ("ForCausalLM", "LMHeadModel"):
            if hasattr(transformers, kind + suffix):
                model: nn.Module = getattr(transformers, kind + suffix)(config)
                return model
        raise AssertionError(kind)

    return make


_GQA = {"num_key_value_heads": KV_HEADS}
_DECODER = Shape(HEADS, KV_HEADS, DIM, eps=1e-6)

FAMILIES: Mapping[str, Family] = {
    "qwen2": Family(_make("Qwen2", **_GQA), _DECODER, _llama_layer),
    "qwen3": Family(_make("Qwen3", **_GQA, head_dim=DIM), _DECODER, _llama_layer),
    "qwen3 unpacked": Family(
        _make("Qwen3", **_GQA, head_dim=DIM),
        _DECODER,
        lambda state, number: _llama_layer(state, number, packed=False),
    ),
    "mixtral": Family(
        _make("Mixtral", **_GQA, num_local_experts=4, num_experts_per_tok=2, rms_norm_eps=1e-6),
        _DECODER,
        _mixtral_layer,
    ),
    "qwen3 with dense and expert layers": Family(
        _make(
            "Qwen3Moe",
            **_GQA,
            num_hidden_layers=3,
            head_dim=DIM,
            num_experts=4,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            moe_intermediate_size=INNER,
            mlp_only_layers=[0],
        ),
        _DECODER,
        _mixed_layer,
    ),
    "one layer": Family(_make("Qwen2", **_GQA, num_hidden_layers=1), _DECODER, _llama_layer),
    "phi3": Family(
        _make(
            "Phi3", **_GQA, rms_norm_eps=1e-6, pad_token_id=0, original_max_position_embeddings=64
        ),
        _DECODER,
        _packed_layer,
    ),
    "glm": Family(
        _make(
            "Glm",
            **_GQA,
            head_dim=DIM,
            attention_bias=True,
            rms_norm_eps=1e-6,
            pad_token_id=0,
        ),
        Shape(HEADS, KV_HEADS, DIM, rope=DIM, eps=1e-6),
        _glm_layer,
    ),
    "phi": Family(
        _make("Phi", **_GQA, hidden_act="gelu"),
        Shape(HEADS, KV_HEADS, DIM, norm="layer", parallel=True, one_norm=True),
        _phi_layer,
        ("model.embed_tokens", "model.final_layernorm", "lm_head"),
    ),
    "neox": Family(
        _make(
            "GPTNeoX",
        ),
        Shape(HEADS, HEADS, DIM, norm="layer", parallel=True),
        _neox_layer,
        ("gpt_neox.embed_in", "gpt_neox.final_layer_norm", "lm_head"),
    ),
}
