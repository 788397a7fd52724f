"""Reports as Parquet and Arrow tables, and as pictures."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pandas
import pyarrow.parquet
import pytest
import torch
from click.testing import CliRunner
from compare_dumps import AtbPair
from generating import captured, model

import ait_llm
from ait_llm.cli.main import ait
from ait_llm.core.comparison import Report
from ait_llm.report import read_jsonl

mpl.use("agg")


@pytest.fixture(scope="module", name="report")
def _report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("pair")
    golden = captured(model(), folder / "golden")
    made = model()
    with torch.no_grad():
        made.model.layers[1].mlp.down_proj.weight *= 1.3
    return ait_llm.compare(golden, captured(made, folder / "mine"), jobs=1)


def test_parquet_has_the_rows_and_columns_of_the_data_frame(tmp_path: Path, report: Report) -> None:
    golden, mine = report.golden.path, report.mine.path
    words = ["llm", "compare", "-gp", golden, "-mp", mine, "-o", str(tmp_path)]
    result = CliRunner().invoke(ait, [*words, "--format", "parquet", "jsonl"])
    assert result.exit_code == 1, result.output
    [file] = tmp_path.glob("*.parquet")
    assert f"{file.stat().st_mode:o}"[-3:] == "640"
    [journal] = tmp_path.glob("*.jsonl")
    expected = read_jsonl(journal).to_pandas()
    found = pandas.read_parquet(file)
    assert [*found.columns] == [*expected.columns]
    for name in ("op", "verdict", "step", "origin", "relative_euclidean_distance"):
        pandas.testing.assert_series_equal(found[name], expected[name], check_dtype=False)
    facts = pyarrow.parquet.read_schema(file).metadata
    assert facts[b"ait_llm.verdict"] == b"FAIL"
    assert facts[b"ait_llm.origins"].startswith(b"root.model.layers.1.mlp.down_proj")


def test_without_its_package_parquet_is_refused_before_anything_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    pair = AtbPair(tmp_path)
    words = ["llm", "compare", "-gp", str(pair.golden), "-mp", str(pair.mine)]
    result = CliRunner().invoke(ait, [*words, "-o", str(tmp_path / "out"), "--format", "parquet"])
    assert result.exit_code == 2
    assert "pip install 'ait-llm[arrow]'" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_plot_shows_the_largest_error_of_each_layer(report: Report) -> None:
    axes = report.plot.error_by_layer()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1"]
    heights = dict(enumerate(axes.patches))
    frame = report.to_pandas()
    frame["layer"] = frame["op"].str.extract(r"layers\.(\d+)")[0].astype(float)
    worst = frame.groupby("layer")["relative_euclidean_distance"].max()
    assert {*heights} == {0, 1}
    assert heights[1].get_height() == pytest.approx(worst[1.0])
    colours = [mpl.colors.to_hex(heights[layer].get_facecolor()) for layer in (0, 1)]
    assert colours == [mpl.colors.to_hex("tab:blue"), mpl.colors.to_hex("tab:red")]


def test_a_plot_of_steps_is_drawn_where_it_is_told_to(report: Report) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    mine = figure.subplots()
    assert report.plot.error_by_step(mine) is mine
    assert mine.get_xlabel() == "step"
    assert len(mine.patches) == len({item.record.step for item in report.comparisons})


def test_a_plot_of_operations_of_the_library_has_their_outermost_ones(tmp_path: Path) -> None:
    pair = AtbPair(tmp_path)
    for number, factor in enumerate((1, 1, 2)):
        array = torch.ones(4).half().numpy()
        pair.add(f"{number}_LinearOperation", array, factor * array)
    axes = ait_llm.compare(pair.golden, pair.mine, jobs=1).plot.error_by_layer()
    assert len(axes.patches) == 3
    assert axes.patches[2].get_height() == pytest.approx(1.0)
    assert [label.get_text().split()[0] for label in axes.get_xticklabels()] == ["0", "1", "2"]


def test_names_without_layers_are_told(tmp_path: Path) -> None:
    made = torch.nn.Sequential()
    made.add_module("only", torch.nn.Linear(4, 4))
    report = ait_llm.diff(made, made, torch.ones(1, 4), operators=False)
    with pytest.raises(ValueError, match="no name of an operation tells a layer"):
        report.plot.error_by_layer()
