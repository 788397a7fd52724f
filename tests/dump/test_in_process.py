"""``ait_llm.diff``: what differs between two programs of one process."""

from __future__ import annotations

import contextlib
import gc
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from generating import PROMPT, model
from torch import Tensor, nn
from torch.nn import functional

import ait_llm
from ait_llm.core.comparison import Report, Verdict
from ait_llm.errors import UsageError


def louder(made: nn.Module) -> nn.Module:
    """The same model with a kernel that computes 1.3 times what it should."""
    kernel = made.model.layers[1].mlp.down_proj  # type: ignore[union-attr]
    kernel.register_forward_hook(lambda _module, _inputs, output: output * 1.3)
    return made


@pytest.fixture(scope="module", name="failed")
def _failed() -> Report:
    return ait_llm.diff(model(), louder(model()), PROMPT)


def test_two_copies_of_a_model_agree() -> None:
    report = ait_llm.diff(model(), model(), PROMPT)
    assert report
    assert report.exit_code() == 0
    assert report.compared > 100


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_of_fewer_digits_agrees(dtype: torch.dtype) -> None:
    assert ait_llm.diff(model(), model().to(dtype), PROMPT)


def test_the_first_operator_that_computes_otherwise_is_named(failed: Report) -> None:
    (origin,) = failed.origins
    assert failed.exit_code() == 1
    assert origin.op.startswith("root.model.layers.1.mlp.down_proj")


def test_without_operators_the_module_is_named() -> None:
    report = ait_llm.diff(model(), louder(model()), PROMPT, operators=False)
    assert report.origins[0].op == "root.model.layers.1.mlp.down_proj"
    assert all(".aten." not in item.record.op for item in report.comparisons)


def test_functions_are_compared_operator_by_operator() -> None:
    def golden(x: Tensor) -> Tensor:
        return functional.softmax(x @ x.T / 4, -1) @ x

    def mine(x: Tensor) -> Tensor:
        return functional.softmax(x @ x.T / 5, -1) @ x

    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    assert ait_llm.diff(golden, golden, x)
    report = ait_llm.diff(golden, mine, x)
    assert report.exit_code() == 1
    assert report.origins[0].op == "root.aten.div.Tensor"


def test_every_step_of_a_method_that_generates_is_compared() -> None:
    golden, mine = model(), model()
    report = ait_llm.diff(golden.generate, mine.generate, PROMPT, max_new_tokens=3)
    assert report
    assert {item.record.step for item in report.comparisons} == {0, 1, 2}


def test_a_batch_generates_alike_with_a_fused_attention() -> None:
    golden, mine = model(), model()
    golden.set_attn_implementation("eager")
    mine.set_attn_implementation("sdpa")
    prompts = torch.tensor([[11, 23, 5, 42], [7, 61, 30, 8], [90, 4, 13, 55]])
    report = ait_llm.diff(golden.generate, mine.generate, prompts, max_new_tokens=3)
    assert report.exit_code() == 0
    fused = "root.model.layers.1.self_attn.aten._scaled_dot_product_flash_attention_for_cpu.default"
    steps = [
        item.record.step
        for item in report.comparisons
        if item.record.op == fused and item.record.role == "out" and item.verdict is Verdict.PASS
    ]
    assert sorted(set(steps)) == [0, 1, 2]


def test_functions_with_two_types_of_arguments_get_them_as_they_are() -> None:
    def golden(x: Tensor, *, y: Tensor) -> Tensor:
        assert (x.dtype, y.dtype) == (torch.float16, torch.float64)
        return x.double() + y

    assert ait_llm.diff(golden, golden, torch.ones(2).half(), y=torch.ones(2).double())


def test_what_one_side_writes_to_its_arguments_the_other_does_not_see() -> None:
    def golden(x: Tensor, cache: list[Any]) -> Tensor:
        cache.append(x)
        return x.mul_(2) * len(cache)

    x, cache = torch.ones(3), []
    assert ait_llm.diff(golden, golden, x, cache)
    assert torch.equal(x, torch.ones(3))
    assert cache == []


def test_both_sides_draw_the_same_random_numbers_and_the_program_goes_on_with_its_own() -> None:
    dropped = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5)).train()
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    assert ait_llm.diff(dropped, dropped, torch.ones(2, 64))
    assert torch.equal(torch.rand(4), expected)


def test_captures_stay_where_a_folder_is_given(tmp_path: Path) -> None:
    ait_llm.diff(model(), model(), PROMPT, folder=tmp_path / "both", operators=False)
    assert ait_llm.compare(tmp_path / "both" / "golden", tmp_path / "both" / "mine")


def test_what_a_side_raises_is_the_caller_s() -> None:
    def mine(x: Tensor) -> Tensor:
        raise ZeroDivisionError("of mine")

    with pytest.raises(ZeroDivisionError, match="of mine"):
        ait_llm.diff(torch.sin, mine, torch.ones(1))
    assert ait_llm.diff(torch.sin, torch.sin, torch.ones(1))


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(UsageError, match="a module or function is needed, not int"):
        ait_llm.diff(torch.sin, 3, torch.ones(1))  # type: ignore[arg-type]


def test_a_frame_has_a_row_for_each_comparison(failed: Report) -> None:
    frame = failed.to_pandas()
    assert len(frame) == len(failed.comparisons)
    assert list(frame.verdict) == [item.verdict.value for item in failed.comparisons]
    (first,) = frame[frame.origin].itertuples()
    assert first.op.startswith("root.model.layers.1.mlp.down_proj")
    assert (first.verdict, first.role) == ("FAIL", "out")
    assert first.relative_euclidean_distance == pytest.approx(0.3, rel=0.01)
    assert first.relative_euclidean_distance > first.limit
    assert first.shape == (1, PROMPT.shape[1], 32) or len(first.shape) == 2
    good = frame[frame.verdict == "PASS"]
    assert (good.relative_euclidean_distance.dropna() < 1e-4).all()


def test_a_frame_of_a_report_without_pairs_has_its_columns(failed: Report) -> None:
    empty = Report(failed.golden, failed.mine, "torch-torch", (), metrics=failed.metrics)
    frame = empty.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(failed.to_pandas().columns)
    assert len(frame) == 0


def test_a_report_shows_itself_in_a_line_and_as_a_table(failed: Report) -> None:
    count = failed.counts[Verdict.FAIL]
    text = f"<Report FAIL: {count} of {failed.compared} compared tensors fail; started at root."
    assert repr(failed).startswith(text)
    assert len(repr(failed)) < 1000
    table = failed._repr_html_()
    assert "<th" in table
    assert "root.model.layers.1.mlp.down_proj" in table


def test_a_capture_is_complete_when_its_block_ends(tmp_path: Path) -> None:
    made = model()
    with ait_llm.capture(made, tmp_path) as run:
        made(PROMPT)
        made(PROMPT)
        with pytest.raises(UsageError, match="complete when its with block ends"):
            _ = run.dump
        assert "goes on" in repr(run)
    assert run.dump.steps == (0, 1)
    assert run.dump.processes[0].sealed
    assert not made._forward_hooks
    assert run.to_pandas()["op"].str.startswith("root").all()
    assert repr(run).startswith("<Run of torch in ")
    assert "2 steps" in run._repr_html_()


def test_a_capture_ends_with_an_exception_of_its_block(tmp_path: Path) -> None:
    made = model()
    with contextlib.suppress(ZeroDivisionError), ait_llm.capture(made, tmp_path) as run:
        made(PROMPT)
        raise ZeroDivisionError
    assert run.dump.processes[0].sealed
    assert not made._forward_hooks


def test_two_captures_compare_and_their_folders_go_with_them() -> None:
    runs = []
    for made in (model(), louder(model())):
        with ait_llm.capture(made, operators=True) as run:
            made(PROMPT)
        runs.append(run)
    golden, mine = runs
    assert golden.compare(golden.path).compared
    (origin,) = mine.compare(golden).origins
    assert origin.op.startswith("root.model.layers.1.mlp.down_proj")
    path = mine.path
    assert path.exists()
    del mine, run, runs
    gc.collect()
    assert not path.exists()


def test_a_wrong_setting_of_a_capture_is_refused_before_anything_runs() -> None:
    with pytest.raises(UsageError, match="mode 'all'"), ait_llm.capture(model(), mode="all"):
        pytest.fail("the block ran")
