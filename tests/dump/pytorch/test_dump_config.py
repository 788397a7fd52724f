"""``DumpConfig`` and ``register_hook``: the manual's parameters, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ait_llm
from ait_llm import DumpConfig, register_hook
from ait_llm.errors import UsageError


def test_positional_parameters_are_those_of_the_manual() -> None:
    config = DumpConfig("out", [0, 2], [nn.Linear], 1, 3)
    assert config == DumpConfig(
        dump_path="out", token_range=[0, 2], module_list=[nn.Linear], tensor_part=1, device_id=3
    )


def test_defaults_are_those_of_the_manual() -> None:
    options = DumpConfig().options()
    assert options.output == Path.cwd()
    assert str(options.steps) == "0,0"
    assert (options.inputs, options.outputs, options.device_id) == (True, True, None)


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([], "0,0"),
        (None, "0,0"),
        ((3, 1, 2), "1,3"),
        ([5, 5, 0], "0,0,5,5"),
        (range(10**12), "0,999999999999"),
        (range(0, 6, 2), "0,0,2,2,4,4"),
    ],
)
def test_token_range_becomes_intervals(steps: Any, text: str) -> None:
    assert str(DumpConfig(token_range=steps).options().steps) == text


def test_home_in_dump_path_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert DumpConfig("~/golden").options().output == tmp_path / "golden"
    assert DumpConfig(tmp_path).options().output == tmp_path


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"dump_path": 3}, "dump_path"),
        ({"token_range": 0}, "token_range"),
        ({"token_range": ["0"]}, "token_range"),
        ({"token_range": [-1]}, "token_range"),
        ({"token_range": [True]}, "token_range"),
        ({"module_list": nn.Linear}, "module_list"),
        ({"module_list": ["Linear"]}, "module_names"),
        ({"tensor_part": 3}, "tensor_part"),
        ({"tensor_part": True}, "tensor_part"),
        ({"tensor_part": "2"}, "tensor_part"),
        ({"device_id": "0"}, "device_id"),
        ({"device_id": -1}, "device_id"),
        ({"module_names": [nn.Linear]}, "module_names"),
        ({"module_names": ["re:("]}, "re:("),
        ({"layers": [(3, 1)]}, "layers"),
        ({"layers": ["0"]}, "layers"),
        ({"layers": [(1, 2, 3)]}, "layers"),
        ({"mode": "statistics"}, "mode"),
        ({"modules": False}, "operators=True"),
        ({"warmup": -1}, "warmup"),
        ({"queue_bytes": 0}, "queue_bytes"),
        ({"queue_bytes": 1.5}, "queue_bytes"),
    ],
)
def test_wrong_values_are_refused_by_name(wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=r".") as caught:
        DumpConfig(**wrong)
    assert word in str(caught.value)


def test_the_hook_type_can_be_given_under_both_names(tmp_path: Path) -> None:
    model, config = nn.Linear(1, 1), DumpConfig(str(tmp_path))
    register_hook(model, config, "dump_data").remove()
    register_hook(model, config, hook_type="dump_data").remove()
    register_hook(model, config, hook_name="dump_data").remove()
    with pytest.raises(UsageError, match="unknown hook type 'other'"):
        register_hook(model, config, "other")


def test_only_modules_and_configs_are_taken(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"needs a torch\.nn\.Module, not str"):
        register_hook("model", DumpConfig(str(tmp_path)))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="needs a DumpConfig, not dict"):
        register_hook(nn.Linear(1, 1), {})  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_made_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    model = nn.Linear(1, 1)
    with pytest.raises(UsageError, match="choose another output folder"):
        register_hook(model, DumpConfig(str(tmp_path / "file")))
    assert not model._forward_hooks


def test_another_device_is_not_captured(tmp_path: Path) -> None:
    model = nn.Linear(1, 1, device="meta")
    handle = register_hook(model, DumpConfig(str(tmp_path), device_id=1))
    assert handle.folder is None
    handle.mark_token()
    handle.begin_generation()
    handle.remove()
    assert not list(tmp_path.iterdir())


def test_a_device_number_does_not_exclude_the_cpu(tmp_path: Path) -> None:
    with register_hook(nn.Linear(1, 1), DumpConfig(str(tmp_path), device_id=1)) as handle:
        assert handle.folder is not None


def test_folders_and_files_have_the_modes_of_the_probe(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with register_hook(model, DumpConfig(str(tmp_path / "out"))), torch.no_grad():
        model(torch.ones(1, 2))
    for path in (tmp_path / "out").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o750 if path.is_dir() else 0o640), path


def test_importing_the_package_imports_no_torch() -> None:
    assert {"DumpConfig", "register_hook", "open_dump"} <= set(dir(ait_llm))
    code = "import sys, ait_llm; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
