"""Capsules of recorded calls of PyTorch functions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from api_dumps import write_dump
from capsules import run_alone, unpacked

from ait_llm.capsule import make_capsule
from ait_llm.errors import UsageError

X = torch.linspace(-1, 1, 48).reshape(3, 16).half()
WEIGHT = torch.linspace(1, 2, 64).reshape(4, 16).half()
RIGHT = torch.nn.functional.linear(X.float(), WEIGHT.float()).half()
WRONG = RIGHT.clone()
WRONG[1, 2] += 1


def described(tensor: torch.Tensor, file: str) -> dict[str, object]:
    return {
        "type": "torch.Tensor",
        "dtype": str(tensor.dtype),
        "shape": list(tensor.shape),
        "Max": 1.0,
        "Min": 0.0,
        "Mean": 0.5,
        "Norm": 1.0,
        "requires_grad": False,
        "data_name": file,
    }


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A wrong linear, a right softmax with a keyword and a type, and a module."""
    soft = torch.softmax(X.float(), dim=-1)
    tensors = {"x.pt": X, "w.pt": WEIGHT, "y.pt": WRONG, "s.pt": soft}
    x, weight, wrong, softened = (described(tensors[name], name) for name in tensors)
    records = {
        "Functional.linear.0.forward": {
            "input_args": [x, weight],
            "input_kwargs": {},
            "output": [wrong],
        },
        "Torch.softmax.0.forward": {
            "input_args": [x],
            "input_kwargs": {
                "dim": {"type": "int", "value": -1},
                "dtype": {"type": "torch.dtype", "value": "torch.float32"},
            },
            "output": [softened],
        },
        "Module.norm.Norm.forward.0": {"input_args": [x], "input_kwargs": {}, "output": [x]},
        "Functional.dropout.0.forward": {
            "input_args": [x, {"type": "float", "value": 0.5}],
            "input_kwargs": {},
            "output": [x],
        },
    }
    return write_dump(tmp_path / "run", records, task="tensor", tensors=tensors)


def test_calls_are_made_again_alone_and_judged(dump: Path, tmp_path: Path) -> None:
    wrong = make_capsule(dump, "Functional.linear.0.forward", tmp_path / "a.zip")
    small = make_capsule(dump, "Functional.linear.0", tmp_path / "b.zip", smaller=True)
    right = make_capsule(dump, "Torch.softmax.0.forward", tmp_path / "c.zip")
    assert (wrong.passed, small.passed, right.passed) == (False, False, True)
    scripts = [unpacked(made.path) for made in (wrong, small, right)]
    kernel = f"{scripts[0].with_name('kernel.py')}:kernel"
    ended = run_alone([*([script] for script in scripts), [scripts[0], "--kernel", kernel]])
    assert [code for code, _ in ended] == [1, 1, 0, 0], ended
    assert "first bad index [1, 2]: golden" in ended[0][1]
    facts = json.loads(scripts[0].with_name("case.json").read_text())
    assert facts["calls"][0]["params"]["function"] == "torch.nn.functional.linear"
    assert small.byte_count < wrong.byte_count / 2


def test_a_call_of_a_program_without_ranks_is_titled_without_one(
    dump: Path, tmp_path: Path
) -> None:
    alone = dump.parent.rename(dump.parent.with_name("proc77"))
    made = make_capsule(alone, "Functional.linear.0.forward", tmp_path / "a.zip")
    assert made.title == "Functional.linear.0.forward outtensor0, step 0"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Functional.linear.7.forward", "there is no call Functional.linear.7.forward"),
        ("Functional.dropout.0.forward", "it drops elements at random"),
        ("Module.norm.Norm.forward.0", "there is no call Module.norm.Norm.forward.0"),
    ],
)
def test_what_cannot_be_called_again_is_told(
    dump: Path, tmp_path: Path, name: str, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        make_capsule(dump, name, tmp_path / "a.zip")
