"""``ait llm show`` on dumps of API calls."""

from __future__ import annotations

import shutil
from pathlib import Path

from click.testing import CliRunner
from msprobe_samples import sample

from ait_llm.cli.show import show


def test_calls_are_listed_by_name_within_their_modules() -> None:
    folder = sample("mix_tensor") / "golden"
    result = CliRunner().invoke(show, [str(folder), "--tensors"])
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines()]
    assert ["0", "2_0", "Module.layers.0.n1.RMSNorm.forward.0", "RMSNorm", "(graph)"] in lines
    assert ["0", "2_0_1", "Tensor.pow.0.forward", "pow"] in lines
    assert ["before/intensor0", "(input.0)", "float", "nd", "[2,5,16]"] in lines


def test_a_json_file_alone_is_listed() -> None:
    path = sample("debug_stat") / "golden" / "step0" / "proc28562" / "debug.json"
    result = CliRunner().invoke(show, [str(path)])
    assert result.exit_code == 0, result.output
    assert "block_grad.0.debug" in result.output


def test_a_capture_that_lost_something_is_not_complete(tmp_path: Path) -> None:
    shutil.copytree(sample("L1_tensor") / "golden", tmp_path / "dump")
    rank = tmp_path / "dump" / "step0" / "rank0"
    next((rank / "dump_tensor_data").iterdir()).unlink()
    path = rank / "dump.json"
    path.write_bytes(path.read_bytes()[:-100])
    result = CliRunner().invoke(show, [str(tmp_path / "dump")])
    assert result.exit_code == 3
    assert "lost 1 tensor of 1 operation" in result.output
    assert "dump.json of step 0 breaks off" in result.output
