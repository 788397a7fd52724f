"""Contexts of llama.cpp in a program, played by a stand-in, against transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from llama_stand_in import CALLBACK, DATA, LlamaCpp, RecordedLibrary
from transformers import LlamaForCausalLM

from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.cli.main import ait
from ait_llm.core import StepRange
from ait_llm.dump.fx.options import FxOptions
from ait_llm.dump.fx.session import sessions
from ait_llm.dump.ggml import hooks
from ait_llm.dump.ggml.library import Library, TensorStruct
from ait_llm.dump.inject.channel import read_reports
from ait_llm.dump.inject.settings import CHANNEL_VARIABLE
from ait_llm.dumps import Dump

Play = Callable[..., LlamaCpp]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    def make(output: Path | None = None, **options: Any) -> LlamaCpp:
        played = LlamaCpp(RecordedLibrary())
        played.install(monkeypatch)
        monkeypatch.setattr(hooks, "library_of", lambda _package: played.library)
        monkeypatch.setenv(CHANNEL_VARIABLE, str(tmp_path))
        monkeypatch.setattr(hooks, "_said", set())
        hooks.capture_contexts(FxOptions(output or tmp_path, **options))
        return played

    return make


def captured(folder: Path) -> Dump:
    sessions._open.pop(folder).close("exit")
    return open_dump(folder)


def lines(folder: Path) -> list[dict[str, Any]]:
    (ledger,) = (folder / "ait_dump" / "ledger").glob("*.jsonl")
    return [json.loads(line) for line in ledger.read_text().splitlines()]


def test_prompt_and_tokens_are_executions_of_one_graph(play: Play, tmp_path: Path) -> None:
    play().run()
    captured(tmp_path)
    (graph,) = (tmp_path / "ait_dump" / "fx_tensors").rglob("graph.json")
    names = sorted(each.name for each in graph.parent.iterdir())
    assert names == ["0", "1", "graph.json"]
    found = [line for line in lines(tmp_path) if line["kind"] == "op"]
    assert {line["state"] for line in found} == {"saved"}
    per_step = [sum(line["step"] == step for line in found) for step in (0, 1)]
    assert per_step == [73, 73]
    assert lines(tmp_path)[-1]["end"] == "exit"
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


def test_weights_are_written_once(play: Play, tmp_path: Path) -> None:
    played = play()
    played.run()
    played.run(1)
    captured(tmp_path)
    files = list(tmp_path.rglob("graph_1/*/Qcur_0-aten.linear.default.INPUT.1.*"))
    assert len(files) == 2
    assert files[0].samefile(files[1])


def test_weights_of_later_executions_are_those_of_the_first(play: Play, tmp_path: Path) -> None:
    played = play()
    played.library.evaluations *= 2
    played.run(4)
    captured(tmp_path)
    files = list(tmp_path.rglob("Qcur_0-aten.linear.default.INPUT.1.*"))
    assert len({each.stat().st_ino for each in files}) == 1
    assert len(files) == 4


def test_what_is_not_wanted_is_not_asked_for(play: Play, tmp_path: Path) -> None:
    played = play(steps=StepRange.parse("0,0"))
    played.run()
    captured(tmp_path)
    half = len(played.asked) // 2
    assert all(played.asked[:half])
    assert not any(played.asked[half:])
    assert {line["step"] for line in lines(tmp_path) if line["kind"] == "op"} == {0}


def test_the_programs_own_callback_is_called_and_its_parameters_stay(
    play: Play, tmp_path: Path
) -> None:
    seen: list[bool] = []

    def own(_address: int, ask: bool, _data: Any) -> bool:
        seen.append(ask)
        return not ask or len(seen) < 4

    function = CALLBACK(own)
    params = play().run(1, function)
    captured(tmp_path)
    assert params.cb_eval is function
    assert seen[:5] == [True, False, True, False, True]
    assert not any(ask is False for ask in seen[5:])


def test_a_failure_of_ours_is_told_once_and_the_program_goes_on(
    play: Play, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    played = play()

    def broken(_tensor: Any) -> Any:
        raise ValueError("no such memory")

    played.library.read = broken  # type: ignore[method-assign]
    played.run()
    told = [each.facts["reason"] for each in read_reports(tmp_path) if each.event == "failed"]
    assert told == ["llama.cpp: ValueError: no such memory"]
    assert caplog.messages == [f"not captured: {told[0]}"]


def test_the_layout_of_tensors_is_that_of_ggml() -> None:
    """Places of ``struct ggml_tensor`` on 64 bits, from ``ggml.h``."""
    places = {name: getattr(TensorStruct, name).offset for name, *_ in TensorStruct._fields_}
    assert places == {
        "type": 0, "buffer": 8, "ne": 16, "nb": 48, "op": 80, "op_params": 84, "flags": 148,
        "src": 152, "view_src": 232, "view_offs": 240, "data": 248, "name": 256, "extra": 320,
    }  # fmt: skip


def test_bfloat16_and_strided_halves_are_read_as_they_are() -> None:
    from llama_stand_in import tensor

    library = Library.__new__(Library)
    bits = np.array([1.5, -2.0], np.float32).view(np.uint32) >> 16
    narrow = tensor("w", "NONE", (2,), dtype="bf16", strides=(2, 4, 4, 4))
    assert library.decoded(narrow, bits.astype(np.uint16).tobytes()).reshape(-1).tolist() == [
        1.5,
        -2,
    ]
    data = np.arange(6, dtype=np.float16).tobytes()
    turned = tensor("v", "VIEW", (3, 2), dtype="f16", strides=(4, 2, 12, 12))
    assert library.decoded(turned, data).reshape(2, 3).tolist() == [[0, 2, 4], [1, 3, 5]]


# Against transformers


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mine")
    with pytest.MonkeyPatch.context() as patch:
        played = LlamaCpp(RecordedLibrary())
        played.install(patch)
        patch.setattr(hooks, "library_of", lambda _package: played.library)
        hooks.capture_contexts(FxOptions(folder))
        played.run()
    captured(folder)
    return folder


def golden(
    folder: Path, change: Callable[[Any], None] = lambda model: None, *, weights: bool = True
) -> Path:
    model = LlamaForCausalLM.from_pretrained(DATA).eval()
    change(model)
    ids, past = torch.tensor([[5, 17, 3, 20, 22]]), None
    config = DumpConfig(folder, token_range=[0, 1], weights=weights)
    with register_hook(model, config), torch.no_grad():
        for token in (22, 22):
            past = model(ids, past_key_values=past, use_cache=True).past_key_values
            ids = torch.tensor([[token]])
    return folder


def compared(golden: Path, mine: Path, output: Path) -> tuple[int, dict[str, Any]]:
    words = ["llm", "compare", "-gp", golden, "-mp", mine, "-o", output, "-j", "1", "--json"]
    result = CliRunner().invoke(ait, list(map(str, words)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])


def test_the_same_checkpoint_in_transformers_passes(mine: Path, tmp_path: Path) -> None:
    code, report = compared(golden(tmp_path / "golden"), mine, tmp_path / "report")
    assert code == 0, report
    rows = (tmp_path / "report").glob("*.csv")
    text = next(rows).read_text()
    for name in ("Qcur_0", "Kcur_1", "kqv_out_0", "ffn_swiglu_1", "result_output"):
        assert name in text


def test_heads_are_not_put_in_order_without_weights(mine: Path, tmp_path: Path) -> None:
    words = ["-gp", golden(tmp_path / "golden", weights=False), "-mp", mine, "-o", tmp_path]
    result = CliRunner().invoke(ait, ["llm", "compare", *map(str, words)])
    assert result.exit_code == 2
    assert "golden has no weights, and llama.cpp keeps heads in an order" in result.stderr
    result = CliRunner().invoke(
        ait, ["llm", "compare", *map(str, words), "--weights-from", f"golden={DATA}"]
    )
    assert result.exit_code == 0, result.stderr


def test_another_weight_is_named(mine: Path, tmp_path: Path) -> None:
    def change(model: Any) -> None:
        model.model.layers[1].mlp.down_proj.weight.data *= 1.02

    code, report = compared(golden(tmp_path / "golden", change), mine, tmp_path / "report")
    assert code == 1
    assert report["origins"][0]["op"] == "ffn_out_1"


def test_another_rotary_base_is_named_and_not_what_moves_its_result(
    mine: Path, tmp_path: Path
) -> None:
    def change(model: Any) -> None:
        rotary = model.model.rotary_emb
        rotary.inv_freq = rotary.inv_freq * 3

    code, report = compared(golden(tmp_path / "golden", change), mine, tmp_path / "report")
    assert code == 1
    first = report["origins"][0]
    assert (first["op"], first["certain"]) == ("Qcur_0_2", False)
    assert "Kcur_0_2" in first["candidates"]


def test_another_epsilon_is_named(mine: Path, tmp_path: Path) -> None:
    def change(model: Any) -> None:
        for layer in model.model.layers:
            layer.post_attention_layernorm.variance_epsilon = 0.1

    code, report = compared(golden(tmp_path / "golden", change), mine, tmp_path / "report")
    assert code == 1
    assert report["origins"][0]["op"] == "ffn_norm_0"


def test_the_values_that_were_captured_compute_rightly(mine: Path, tmp_path: Path) -> None:
    words = ["llm", "opcheck", "-i", str(mine), "-o", str(tmp_path), "--json"]
    result = CliRunner().invoke(ait, words)
    assert result.exit_code == 0, result.output
