"""The golden run has the numbers that the same checkpoint has with a cache, step by step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from generating import captured, model
from safetensors.torch import load_file, save_file
from transformers import MixtralConfig, MixtralForCausalLM, Qwen3Config, Qwen3ForCausalLM

from ait_llm.core import StepRange
from ait_llm.dump.golden.run import GoldenPlan, GoldenSettings, plan_golden, run_golden
from ait_llm.dumps import open_dump

Array = np.ndarray
PROMPTS = torch.tensor([[0, 0, 0, 5, 42], [11, 23, 5, 42, 9], [0, 7, 8, 9, 10]])
NEAR = 2e-6
"""Roundings of float32 that a cache orders otherwise."""


def mixtral() -> Any:
    torch.manual_seed(3)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = MixtralConfig(
        vocab_size=96, hidden_size=32, intermediate_size=48, num_local_experts=4, **sizes
    )
    return MixtralForCausalLM(config).eval()


def tied() -> Any:
    torch.manual_seed(4)
    config = Qwen3Config(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=True,
    )
    return Qwen3ForCausalLM(config).eval()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint, and what it computes in transformers with a cache, padded on the left."""
    folder = tmp_path_factory.mktemp("golden")
    made = model()
    made.save_pretrained(folder / "checkpoint")
    captured(made, folder / "mine", PROMPTS)
    return folder


def golden(place: Path, output: Path, **settings: Any) -> GoldenPlan:
    plan = plan_golden(
        GoldenSettings(place / "checkpoint", place / "mine", output.absolute(), **settings)
    )
    summary = run_golden(plan)
    assert summary.problems == ()
    return plan


def values(folder: Path) -> dict[tuple[int, str, int, str], Array]:
    """All floating-point tensors, by step, module, call and name."""
    return {
        (operation.step, operation.name, operation.call, tensor.stem): np.asarray(tensor.nd())
        for operation in open_dump(folder).operations()
        for tensor in operation.tensors
        if tensor.dtype.is_floating
    }


def tokens(array: Array, step: int) -> Array:
    """The rows that are no padding."""
    mask = PROMPTS.numpy() != 0
    return array[mask] if step == 0 and array.shape[:2] == mask.shape else array


def assert_near(found: Mapping[Any, Array], wanted: Mapping[Any, Array]) -> int:
    """The number of values that both have, which are the same."""
    common = [key for key in found if key in wanted]
    for key in common:
        one, other = tokens(found[key], key[0]), tokens(wanted[key], key[0])
        assert one.shape == other.shape, key
        np.testing.assert_allclose(one, other, atol=NEAR, err_msg=str(key))
    return len(common)


def test_every_value_is_that_of_a_run_with_a_cache(place: Path, tmp_path: Path) -> None:
    golden(place, tmp_path)
    mine, found = values(place / "mine"), values(tmp_path)
    own = {key for key in mine if "past_key" not in key[3] and "mask" not in key[3]}
    assert not own - set(found)
    assert assert_near(found, mine) == len(own)


def test_layer_by_layer_every_bit_is_the_same(place: Path, tmp_path: Path) -> None:
    golden(place, tmp_path / "whole", layer_by_layer=False)
    plan = golden(place, tmp_path / "parts", layer_by_layer=True)
    assert len(plan.groups) == 2  # 7 tokens, and 9 and 10
    whole, parts = values(tmp_path / "whole"), values(tmp_path / "parts")
    assert whole.keys() == parts.keys()
    assert all(np.array_equal(whole[key], parts[key]) for key in whole)


@pytest.mark.parametrize("make", [mixtral, tied])
def test_converted_and_tied_weights_are_loaded_layer_by_layer(make: Any, tmp_path: Path) -> None:
    made = make()
    made.save_pretrained(tmp_path / "checkpoint", max_shard_size="20KB")
    assert len([*(tmp_path / "checkpoint").glob("*.safetensors")]) > 1
    captured(made, tmp_path / "mine", PROMPTS[1:2])
    golden(tmp_path, tmp_path / "golden", layer_by_layer=True)
    mine, found = values(tmp_path / "mine"), values(tmp_path / "golden")
    assert assert_near(found, mine) > 100


@pytest.mark.parametrize(("free", "layer_by_layer"), [(1 << 40, False), (1000, True)])
def test_weights_that_do_not_fit_onto_the_device_are_held_layer_by_layer(
    free: int, layer_by_layer: bool, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = SimpleNamespace(mem_get_info=lambda _device: (free, 1 << 41))
    monkeypatch.setattr(torch, "get_device_module", lambda _device: told)
    settings = GoldenSettings(place / "checkpoint", place / "mine", tmp_path, device="meta")
    assert plan_golden(settings).layer_by_layer is layer_by_layer


def test_no_weights_of_a_layer_stay_in_memory(place: Path, tmp_path: Path) -> None:
    from ait_llm.dump.golden.checkpoint import open_checkpoint
    from ait_llm.dump.golden.streamed import StreamedModel

    checkpoint = open_checkpoint(place / "checkpoint")
    streamed = StreamedModel(checkpoint, torch.float32, torch.device("cpu"), "eager")
    streamed.be_at({"model.layers.0"})
    streamed.be_at({"model.layers.1"})
    there = {
        name.split(".")[2]
        for name, each in streamed.model.named_parameters()
        if ".layers." in name and not each.is_meta
    }
    assert there == {"1"}


def test_modules_hand_on_what_the_next_one_reads(place: Path, tmp_path: Path) -> None:
    golden(place, tmp_path)
    [ledger] = tmp_path.rglob("ledger/*.jsonl")
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    of = {(line["op"], line["step"]): line for line in lines if line["kind"] == "op"}
    for step in (0, 3):
        written = of["root.model.layers.0", step]["identity"]["output"]
        assert of["root.model.layers.1", step]["identity"]["input_0"] == written
        assert of["root.model.layers.1.input_layernorm", step]["identity"]["input_0"] == written


def test_only_the_layers_and_steps_that_are_wanted_are_written(place: Path, tmp_path: Path) -> None:
    golden(place, tmp_path, layers=((1, 1),), steps=StepRange.parse("1,2"))
    keys = {(key[0], key[1].partition(".layers.")[2].partition(".")[0]) for key in values(tmp_path)}
    assert keys == {(1, "1"), (2, "1"), (1, ""), (2, "")}


def test_like_takes_the_type_of_the_capture(place: Path, tmp_path: Path) -> None:
    made = model().to(torch.bfloat16)
    captured(made, tmp_path / "mine", PROMPTS[1:2])
    (tmp_path / "checkpoint").symlink_to(place / "checkpoint")
    golden(tmp_path, tmp_path / "golden", dtype="like")
    mine, found = values(tmp_path / "mine"), values(tmp_path / "golden")
    key = (0, "root.model.layers.1.mlp.down_proj", 0, "output")
    [tensor] = [
        tensor
        for operation in open_dump(tmp_path / "golden").operations(step=0)
        for tensor in operation.tensors
        if (operation.name, tensor.stem) == (key[1], key[3])
    ]
    assert tensor.dtype.label == "bf16"
    np.testing.assert_allclose(
        found[key].astype(np.float32), mine[key].astype(np.float32), atol=0.02
    )


def test_a_second_run_into_the_same_folder_replaces_the_first(place: Path, tmp_path: Path) -> None:
    from ait_llm import compare
    from ait_llm.core import Verdict

    golden(place, tmp_path)
    golden(place, tmp_path)
    report = compare(tmp_path, place / "mine", jobs=1)
    assert report.verdict is Verdict.PASS
    assert [each.text for each in report.problems if each.decides] == []


def test_a_damaged_shard_is_named(place: Path, tmp_path: Path) -> None:
    from ait_llm.errors import FormatError

    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    for path in (place / "checkpoint").iterdir():
        (checkpoint / path.name).write_bytes(path.read_bytes())
    weights = load_file(checkpoint / "model.safetensors")
    save_file(weights, checkpoint / "model.safetensors")
    with (checkpoint / "model.safetensors").open("r+b") as file:
        file.truncate(2000)
    (tmp_path / "mine").symlink_to(place / "mine")
    with pytest.raises(FormatError, match=r"model\.safetensors"):
        golden(tmp_path, tmp_path / "golden", layer_by_layer=True)
