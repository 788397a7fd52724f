"""Arguments that the functions of ptdbg refuse, with the errors and texts that scripts know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from ait_llm.errors import AitError, MissingDependencyError, UsageError
from ait_llm.ptdbg import (
    acc_cmp_dump,
    overflow_check,
    register_hook,
    set_backward_input,
    set_dump_path,
    set_dump_switch,
    set_overflow_check_switch,
)


@pytest.fixture
def hooked(tmp_path: Path) -> Path:
    set_dump_path(tmp_path / "a.pkl")
    register_hook(nn.ReLU(), acc_cmp_dump)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"switch": "on"}, "Please set dump switch with 'ON' or 'OFF'."),
        ({"switch": "ON", "filter_switch": "1"}, "Please set filter_switch with 'ON' or 'OFF'."),
        ({"switch": "ON", "dump_mode": "input"}, "Please set dump_mode with 'all' or 'forward'"),
        ({"switch": "ON", "mode": "range", "scope": ["a"]}, "it's must be [start, end]."),
        ({"switch": "ON", "mode": "list"}, "it's should not be an empty list."),
        ({"switch": "ON", "mode": "stack", "scope": ["a"] * 3}, "it's must be [start, end] or []."),
        ({"switch": "ON", "mode": "acl", "scope": []}, "only one api name is supported in acl"),
        ({"switch": "ON", "mode": "api_list"}, "the content of api_list parameter is empty"),
        ({"switch": "ON", "mode": "api_stack", "scope": ["a"]}, "mode 'api_stack' takes no scope"),
        ({"switch": "ON", "mode": "some"}, "mode 'some' is none of all, list, range"),
        ({"switch": "ON", "mode": "list", "scope": "Torch_relu"}, "scope is a list of names"),
        ({"switch": "ON", "mode": "acl", "scope": ["a"]}, "needs register_hook("),
    ],
)
def test_switches_that_mean_nothing(hooked: Path, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(AssertionError) as error:
        set_dump_switch(**arguments)
    assert text in str(error.value)
    assert isinstance(error.value, UsageError)


@pytest.mark.parametrize("path", [None, "", "folder", "dump.npy"])
def test_paths_that_name_no_pkl_file(tmp_path: Path, path: str | None) -> None:
    (tmp_path / "folder").mkdir()
    given = str(tmp_path / path) if path else path
    with pytest.raises(
        RuntimeError, match=r"set_dump_path '.*' error, please set a valid filename"
    ):
        set_dump_path(given)


def test_tags_are_names_of_folders(tmp_path: Path) -> None:
    for tag in ("../up", "", "..", "a b"):
        with pytest.raises(RuntimeError, match="is no name of a folder"):
            set_dump_path(tmp_path / "a.pkl", dump_tag=tag)


def test_hooks_are_one_of_two_and_once(hooked: Path) -> None:
    with pytest.raises(AssertionError, match="hook must be acc_cmp_dump or overflow_check"):
        register_hook(nn.ReLU(), print)
    with pytest.raises(UsageError, match="register_hook was called already"):
        register_hook(nn.ReLU(), acc_cmp_dump)
    with pytest.raises(UsageError, match="is an argument"):
        acc_cmp_dump()
    with pytest.raises(UsageError, match="is an argument"):
        overflow_check()


def test_switches_before_their_hook(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"call register_hook\(model, acc_cmp_dump\) before it"):
        set_dump_switch("ON")
    with pytest.raises(UsageError, match=r"call register_hook\(model, overflow_check\) before it"):
        set_overflow_check_switch("ON")


def test_kernel_dumps_need_their_configuration(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="dump_mode is acl mode, dump_config must be"):
        register_hook(nn.ReLU(), acc_cmp_dump, dump_mode="acl")
    config = tmp_path / "dump.txt"
    with pytest.raises(AssertionError, match="dump_config must be configure json file"):
        register_hook(nn.ReLU(), acc_cmp_dump, dump_mode="acl", dump_config=config)
    config = tmp_path / "dump.json"
    for content, text in (("{}", "does not say where the dump goes"), ("{", "is not JSON")):
        config.write_text(content)
        with pytest.raises(AitError, match=text):
            register_hook(nn.ReLU(), acc_cmp_dump, dump_mode="acl", dump_config=config)
    config.write_text('{"dump": {"dump_path": "./out"}}')
    with pytest.raises(MissingDependencyError, match="needs torch_npu, which is not installed"):
        register_hook(nn.ReLU(), acc_cmp_dump, dump_mode="acl", dump_config=config)


def test_backward_inputs_are_files(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="takes a list"):
        set_backward_input(str(tmp_path / "a.npy"))
    with pytest.raises(UsageError, match="no such file"):
        set_backward_input([tmp_path / "a.npy"])
