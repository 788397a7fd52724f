"""Scalars of a report, read back by TensorBoard."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from report_builder import comparison, record, report

from ait_llm.cli.main import ait
from ait_llm.report import write_reports


def written(tmp_path: Path) -> Path:
    """A report of two layers and two steps; the second layer is wrong in the second step."""
    items = []
    for step in (0, 1):
        for layer, error in ((0, 0.001), (1, 0.25 if step else 0.002)):
            for part, share in (("q_proj", 1.0), ("o_proj", 0.5)):
                mine = record(f"root.model.layers.{layer}.{part}", op_id="", step=step)
                items.append(comparison(error * share, mine=mine, introduced=error * share / 2))
    return write_reports(report(*items), ["jsonl"], tmp_path / "report")[0]


def export(*words: str | Path) -> Result:
    return CliRunner().invoke(ait, ["llm", "export", *map(str, words)])


def test_each_layer_has_its_largest_error_by_step(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    ).EventAccumulator
    folder = tmp_path / "runs" / "mine"
    said = export(written(tmp_path), "--to", "tensorboard", "-o", folder)
    assert said.exit_code == 0, said.output
    assert "complete: 12 scalars below" in said.output
    read = accumulator(str(folder)).Reload()
    found = {
        tag: [(each.step, pytest.approx(each.value)) for each in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }
    layers = "root.model.layers.0", "root.model.layers.1"
    assert found == {
        f"relative_error/{layers[0]}": [(0, 0.001), (1, 0.001)],
        f"relative_error/{layers[1]}": [(0, 0.002), (1, 0.25)],
        f"introduced_error/{layers[0]}": [(0, 0.0005), (1, 0.0005)],
        f"introduced_error/{layers[1]}": [(0, 0.001), (1, 0.125)],
        f"failed/{layers[0]}": [(0, 0), (1, 0)],
        f"failed/{layers[1]}": [(0, 0), (1, 2)],
    }


def test_a_report_goes_with_a_trace_only(tmp_path: Path) -> None:
    file = written(tmp_path)
    said = export(file, "--to", "tensorboard", "-o", tmp_path / "runs", "--report", file)
    assert said.exit_code == 2
    assert "--report goes with --to trace" in said.output
