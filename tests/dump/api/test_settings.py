"""``config.json``: what it says, and what is told about what it cannot say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from api_captures import Debug, Read

from ait_llm.dump.api.settings import read_settings, settings_of
from ait_llm.errors import UsageError


def test_settings_of_a_complete_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(
            {
                "task": "tensor",
                "dump_path": str(tmp_path),
                "rank": [0, "2-3"],
                "step": ["1 - 2"],
                "level": "mix",
                "async_dump": True,
                "tensor": {
                    "list": ["linear"],
                    "data_mode": ["forward"],
                    "summary_mode": "md5",
                    "slice": [{"dim": 0, "size": 8, "begin": 2, "end": 4}],
                },
                "statistics": {"list": ["of another task"]},
            }
        )
    )
    settings = read_settings(path, level="L1")

    assert settings.level == "L1"
    assert settings.ranks == {0, 2, 3}
    assert settings.steps == {1, 2}
    assert settings.names == ("linear",)
    assert (settings.forward, settings.backward) == (True, False)
    assert (settings.inputs, settings.outputs) == (True, True)
    assert settings.asynchronous
    assert settings.slices[0].begin == 2


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"task": "acc_check"}, "api-check"),
        ({"task": "sttistics"}, "task: 'sttistics' is none of"),
        ({"level": "L2"}, "level 'L2'"),
        ({"level": "L9"}, "level: 'L9'"),
        ({"step": [-1]}, "step: -1"),
        ({"step": ["3-1"]}, "first to last"),
        ({"rank": "0"}, "rank: a list"),
        ({"dump_path": ""}, "dump_path"),
        ({"dump_path": "/tmp/a+b"}, "special characters"),
        ({"statistics": {"scope": ["Torch.exp.0.forward"]}}, "scope: two full names"),
        ({"statistics": {"scope": ["Module.a.B.forward.0"] * 2}}, "no name of level L1"),
        ({"statistics": {"data_mode": ["all", "input"]}}, "'all' stands alone"),
        ({"statistics": {"summary_mode": "sha"}}, "summary_mode: 'sha'"),
        ({"statistics": {"list": "exp"}}, "list: a list of texts"),
        ({"statistics": {"slice": [{"dim": 0}]}}, "slice: a list of"),
        ({"risk_level": "HIGH"}, "risk_level: 'HIGH'"),
        ({"enable_dataloader": True}, "around each iteration"),
        ({"task": "tensor", "tensor": {"bench_path": "/x"}}, "bench_path"),
        ({"task": "overflow_check", "overflow_check": {"overflow_nums": 0}}, "overflow_nums"),
    ],
)
def test_what_means_nothing_is_refused_by_the_name_of_its_key(
    config: dict[str, Any], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        settings_of({"dump_path": "/tmp/dump", **config})


def test_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{")
    with pytest.raises(UsageError, match=r"config\.json: not valid JSON"):
        read_settings(path)
    with pytest.raises(UsageError, match=r"missing\.json: the configuration cannot be read"):
        read_settings(tmp_path / "missing.json")


def test_capture_is_switched_on_by_its_file_while_the_program_runs(
    debug: Debug, captured: Read, tmp_path: Path
) -> None:
    debugger = debug(dump_enable=False)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())

    def step() -> None:
        debugger.start()
        torch.exp(torch.ones(2))
        debugger.stop()
        debugger.step()

    step()
    path.write_text(json.dumps({**config, "dump_enable": True}))
    step()
    path.write_text("{broken")
    step()

    assert [each for each in range(3) if (tmp_path / "dump" / f"step{each}").exists()] == [1]


def test_functions_are_added_and_left_out_by_a_file_beside_the_configuration(
    debug: Debug, captured: Read, tmp_path: Path
) -> None:
    (tmp_path / "support_wrap_ops.yaml").write_text(
        "# mine\nTensor:\n  - '!exp'\n  - clone  # not in the list\njson:\n  - dumps\n"
    )
    x = torch.ones(2)
    debugger = debug()
    debugger.start()
    x.exp()
    x.clone()
    json.dumps([1])
    debugger.stop()

    assert list(captured().data) == ["Tensor.clone.0.forward", "json.dumps.0.forward"]


def test_slices_and_lists_of_tensors_with_data(debug: Debug, captured: Read) -> None:
    x = torch.arange(8.0)
    part = {"dim": 0, "size": 8, "begin": 2, "end": 4}
    debugger = debug(section={"tensor_list": ["exp"], "slice": [part]})
    debugger.start()
    torch.exp(x)
    torch.sin(x)
    debugger.stop()

    assert captured().files == {
        "Torch.exp.0.forward.input.0.pt",
        "Torch.exp.0.forward.output.0.pt",
    }
    assert torch.equal(captured().tensor("Torch.exp.0.forward.input.0.pt"), x[2:4])
    entry = captured().data["Torch.sin.0.forward"]["input_args"][0]
    assert (entry["shape"], entry["Max"]) == ([2], 3.0)


def test_asynchronous_capture_has_the_same_records_and_data(debug: Debug, captured: Read) -> None:
    x = torch.arange(4.0)
    debugger = debug("tensor", async_dump=True)
    debugger.start()
    x += 1
    torch.exp(x)
    debugger.stop()

    assert list(captured().data) == ["Tensor.__iadd__.0.forward", "Torch.exp.0.forward"]
    first = captured().tensor("Tensor.__iadd__.0.forward.input.0.pt")
    assert torch.equal(first, torch.arange(4.0))


def test_structure_has_names_stacks_and_parents_only(debug: Debug, captured: Read) -> None:
    model = torch.nn.Sequential(torch.nn.ReLU())
    debugger = debug("structure", "mix")
    debugger.start(model)
    model(torch.ones(2))
    debugger.stop()

    assert captured().data == {"Functional.relu.0.forward": {}, "Module.0.ReLU.forward.0": {}}
    assert captured().json("construct.json")["Functional.relu.0.forward"] == (
        "Module.0.ReLU.forward.0"
    )


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"levle": "L0"}, "'levle' is no setting; is 'level' meant?"),
        ({"statistics": {"lst": ["linear"]}}, "'lst' is no setting; is 'list' meant?"),
        ({"extra_info": "false"}, "extra_info: true or false"),
        ({"async_dump": 1}, "async_dump: true or false"),
    ],
)
def test_a_slip_is_refused(tmp_path: Path, config: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings_of({"dump_path": str(tmp_path), **config})
    assert str(caught.value) == text


def test_keys_of_other_tools_and_tasks_are_no_slips(tmp_path: Path) -> None:
    others = {"grad_probe": {"grad_level": "L1"}, "seed": 3, "a_later_one": [], "tensor": {"l": 1}}
    assert settings_of({"dump_path": str(tmp_path), **others}).level == "L1"
