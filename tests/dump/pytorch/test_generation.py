"""Steps of real generation with transformers, and results that a capture does not change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_models import calls, ledger_lines, opened, values
from torch import nn

from ait_llm import DumpConfig, register_hook
from ait_llm.dump.torch_hook import HookHandle

transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

_SIZES = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 32,
    "eos_token_id": None,
    "bos_token_id": 1,
    "pad_token_id": 0,
}
_GQA = _SIZES | {"num_key_value_heads": 2}
CONFIGS: dict[str, Any] = {
    "Llama": _GQA,
    "Qwen2": _GQA,
    "Qwen3": _GQA | {"head_dim": 4},
    "Mixtral": _GQA | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "GPTNeoX": _SIZES,
}
PROMPT = torch.tensor([[5, 9, 2, 7, 11, 3, 8]])
BATCH = torch.tensor([[5, 9, 2, 7], [3, 1, 4, 6]])


def build(name: str = "Llama") -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**CONFIGS[name])
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def _generate(model: Any, ids: torch.Tensor = PROMPT, **options: Any) -> torch.Tensor:
    options = {"max_new_tokens": 4, "do_sample": False} | options
    mask = torch.ones_like(ids)
    result: torch.Tensor = model.generate(ids, attention_mask=mask, **options)
    return result


def _steps(out: Path) -> list[tuple[int, int, int]]:
    """Step, generation and call within the step of each forward call of the model."""
    return [
        (line["step"], line["generation"], line["call"])
        for line in ledger_lines(out)
        if line.get("op") == "root"
    ]


def _count(tmp_path: Path, run: Callable[[Any, HookHandle], object], **config: Any) -> Any:
    model = build()
    config = {"token_range": range(50), "module_names": "re:^root$"} | config
    with register_hook(model, DumpConfig(str(tmp_path), **config)) as handle:
        run(model, handle)
    return _steps(tmp_path)


PLAIN = [(step, 0, 0) for step in range(4)]


@pytest.mark.parametrize("name", CONFIGS)
def test_tokens_are_counted_and_results_are_bit_identical(tmp_path: Path, name: str) -> None:
    expected = build(name).generate(
        BATCH,
        attention_mask=torch.ones_like(BATCH),
        max_new_tokens=3,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    model = build(name)
    with register_hook(model, DumpConfig(str(tmp_path), token_range=[0, 1, 2])):
        found = model.generate(
            BATCH,
            attention_mask=torch.ones_like(BATCH),
            max_new_tokens=3,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
    assert torch.equal(found.sequences, expected.sequences)
    for mine, golden in zip(found.logits, expected.logits, strict=True):
        assert torch.equal(mine, golden)
    assert _steps(tmp_path) == PLAIN[:3]
    for step, golden in enumerate(expected.logits):
        saved = values(calls(opened(tmp_path), step)["root"])["output_logits"]
        assert torch.equal(saved[:, -1], golden)


@pytest.mark.parametrize("operators", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_mode_leaves_the_logits_alone(
    tmp_path: Path, operators: bool, dtype: torch.dtype
) -> None:
    model = build("Mixtral").to(dtype)
    with torch.no_grad():
        expected = model(BATCH).logits
        config = DumpConfig(str(tmp_path), mode="both", operators=operators, weights=True)
        with register_hook(model, config):
            assert torch.equal(model(BATCH).logits, expected)
        assert torch.equal(model(BATCH).logits, expected)


def test_bert_calls_are_steps(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(**_SIZES, max_position_embeddings=16)
    model = transformers.BertModel(config).eval()
    with torch.no_grad():
        expected = model(PROMPT).last_hidden_state
        with register_hook(model, DumpConfig(str(tmp_path), token_range=[0, 1, 2])):
            found = [model(ids).last_hidden_state for ids in (PROMPT, BATCH, PROMPT)]
    assert torch.equal(found[0], expected)
    assert [step for step, _, _ in _steps(tmp_path)] == [0, 1, 2]
    saved = values(calls(opened(tmp_path), 2)["root"])
    assert torch.equal(saved["output_last_hidden_state"], expected)


GENERATE: dict[str, tuple[dict[str, Any], list[tuple[int, int, int]]]] = {
    "one sequence": ({}, PLAIN),
    "batch": ({"ids": BATCH}, PLAIN),
    "no cache": ({"use_cache": False}, PLAIN),
    "chunked prefill": ({"prefill_chunk_size": 3}, [(0, 0, 0), (0, 0, 1), (0, 0, 2), *PLAIN[1:]]),
    "beam search": ({"num_beams": 2}, PLAIN),
    "static cache": ({"cache_implementation": "static"}, PLAIN),
    "sampling": ({"do_sample": True}, PLAIN),
}


@pytest.mark.parametrize("way", GENERATE)
def test_ways_of_generating(tmp_path: Path, way: str) -> None:
    options, expected = GENERATE[way]
    assert _count(tmp_path, lambda model, handle: _generate(model, **options)) == expected


def test_two_generations_continue_the_count(tmp_path: Path) -> None:
    found = _count(
        tmp_path,
        lambda model, handle: [_generate(model, ids, max_new_tokens=2) for ids in (PROMPT, BATCH)],
    )
    assert found == [(0, 0, 0), (1, 0, 0), (2, 1, 0), (3, 1, 0)]


def test_a_warm_up_does_not_count(tmp_path: Path) -> None:
    found = _count(
        tmp_path,
        lambda model, handle: [_generate(model, ids, max_new_tokens=2) for ids in (BATCH, PROMPT)],
        warmup=1,
    )
    assert found == [(0, 0, 0), (1, 0, 0)]
    ids = values(calls(opened(tmp_path), 0)["root"])["input_input_ids"]
    assert torch.equal(ids, PROMPT)


class _Passing(nn.Module):
    """Passes on what it lacks to what it holds, as both layers of peft's adapters do."""

    def __init__(self, **inner: nn.Module) -> None:
        super().__init__()
        for name, module in inner.items():
            self.add_module(name, module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return next(self.children())(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            inner = self.__dict__.get("_modules")
            if name.startswith("_") or not inner:
                raise
            return getattr(next(iter(inner.values())), name)


class _Adapted(_Passing):
    """Looks like ``PeftModelForCausalLM``: its ``generate`` never calls the adapter itself."""

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        return self.base_model.generate(*args, **kwargs)


@pytest.mark.parametrize("warmup", [0, 1])
def test_a_model_within_an_adapter_counts_its_tokens_and_warm_ups(
    tmp_path: Path, warmup: int
) -> None:
    model = _Adapted(base_model=_Passing(model=build()))
    config = DumpConfig(str(tmp_path), token_range=range(50), warmup=warmup)
    with register_hook(model, config):
        for ids in (BATCH, PROMPT):
            _generate(model, ids, max_new_tokens=3)
    found = [
        (line["step"], line["generation"], line["call"])
        for line in ledger_lines(tmp_path)
        if line.get("op") == "root.base_model.model"
    ]
    assert found == [
        (3 * generation + token, generation, 0)
        for generation in range(2 - warmup)
        for token in range(3)
    ]


def test_assisted_decoding_counts_calls_of_the_model(tmp_path: Path) -> None:
    assistant = build()
    assistant.generation_config.num_assistant_tokens = 3
    model = build()
    counted: list[int] = []
    with register_hook(model, DumpConfig(str(tmp_path), token_range=range(50))):
        hook = model.register_forward_hook(lambda *_: counted.append(1))
        found = _generate(model, max_new_tokens=8, assistant_model=assistant)
        hook.remove()
    assert torch.equal(found, _generate(build(), max_new_tokens=8))
    assert _steps(tmp_path) == [(step, 0, 0) for step in range(len(counted))]
    assert 1 < len(counted) < 8


def _loop(cache: Any, calls_after: int = 3) -> Callable[[Any, HookHandle], object]:
    def run(model: Any, handle: HookHandle) -> None:
        with torch.no_grad():
            past = cache(model)
            for ids in (PROMPT, *(torch.tensor([[i]]) for i in range(calls_after))):
                past = model(ids, past_key_values=past, use_cache=True).past_key_values

    return run


@pytest.mark.parametrize(
    "cache",
    [
        lambda model: None,
        lambda model: transformers.DynamicCache(),
        lambda model: transformers.StaticCache(config=model.config, max_cache_len=16),
    ],
    ids=["model's own", "dynamic", "static"],
)
def test_hand_written_loops(tmp_path: Path, cache: Any) -> None:
    assert _count(tmp_path, _loop(cache)) == PLAIN


def test_a_loop_without_a_cache(tmp_path: Path) -> None:
    def run(model: Any, handle: HookHandle) -> None:
        with torch.no_grad():
            for length in range(3, 7):
                model(PROMPT[:, :length])

    assert _count(tmp_path, run) == PLAIN


def test_a_model_with_positional_tuple_caches(tmp_path: Path) -> None:
    class Old(nn.Module):
        """Keeps its cache as tuples of keys and values, as models did before Cache objects."""

        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(32, 4)

        def forward(self, input_ids: torch.Tensor, past: Any = None) -> Any:
            keys = self.embed(input_ids)[:, None]
            if past is not None:
                keys = torch.cat([past[0][0], keys], dim=2)
            return keys.sum(2), ((keys, keys),)

    model, past = Old(), None
    config = DumpConfig(str(tmp_path), token_range=range(9), warmup=1)
    with register_hook(model, config), torch.no_grad():
        for _ in range(2):
            past = None
            for ids in (PROMPT, PROMPT[:, :1], PROMPT[:, :1]):
                _, past = model(ids, past)
    assert _steps(tmp_path) == PLAIN[:3]


def test_marks_by_hand_decide_where_steps_begin(tmp_path: Path) -> None:
    def run(model: Any, handle: HookHandle) -> None:
        with torch.no_grad():
            for _ in range(2):
                handle.mark_token()
                model(PROMPT[:, :3])
                model(PROMPT[:, 3:])

    assert _count(tmp_path, run) == [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)]


def test_each_layer_records_its_own_part_of_the_cache(tmp_path: Path) -> None:
    model = build()
    with register_hook(model, DumpConfig(str(tmp_path), token_range=[0, 1])):
        _generate(model, max_new_tokens=2)
    found = calls(opened(tmp_path), 1)
    root = values(found["root"])
    for layer in range(2):
        own = values(found[f"root.model.layers.{layer}.self_attn"])
        assert torch.equal(
            own["input_past_key_values_key"], root[f"input_past_key_values_{layer}_key"]
        )
        assert own["input_past_key_values_key"].shape[2] == PROMPT.shape[1]
        assert root[f"output_past_key_values_{layer}_value"].shape[2] == PROMPT.shape[1] + 1


def test_encoder_and_caches_of_an_encoder_decoder_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=32,
        d_model=16,
        d_kv=4,
        d_ff=32,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    with register_hook(model, DumpConfig(str(tmp_path), token_range=range(9))):
        _generate(model, max_new_tokens=3)
    assert _steps(tmp_path) == PLAIN[:3]
    prefill, decode = calls(opened(tmp_path), 0), calls(opened(tmp_path), 1)
    assert "root.encoder.block.0" in prefill
    assert "root.encoder.block.0" not in decode
    assert "input_past_key_values_self_0_key" in values(decode["root"])
    assert "input_past_key_values_cross_1_value" in values(decode["root"])
    assert not [line for line in ledger_lines(tmp_path) if line.get("modules")]
