"""Level debug: what ``save`` gets, and its gradients."""

from __future__ import annotations

import pytest
import torch
from api_captures import Debug, Read

from ait_llm.dump.api import save
from ait_llm.errors import UsageError


def test_variables_and_their_gradients_are_recorded_in_their_structure(
    debug: Debug, captured: Read
) -> None:
    debugger = debug("tensor", "debug")
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    save({"hidden": y, "list": [y.sum(), 3, "text"]}, "block")
    save(y, "y")
    debugger.save(7, "number", save_backward=False)
    (y * 5).sum().backward()
    debugger.step()

    document = captured().json("debug.json")
    assert {key: document[key] for key in ("task", "level", "framework")} == {
        "task": "tensor",
        "level": "debug",
        "framework": "pytorch",
    }
    data = document["data"]
    assert list(data) == [
        "block.0.debug",
        "block_grad.0.debug",
        "y.0.debug",
        "y_grad.0.debug",
        "number.0.debug",
    ]
    assert data["block.0.debug"]["list"][1:] == [
        {"type": "int", "value": 3},
        {"type": "str", "value": "text"},
    ]
    gradient = data["block_grad.0.debug"]
    assert gradient["list"] == [None, None, None]
    assert gradient["hidden"]["data_name"] == "block_grad.0.debug.hidden.pt"
    assert torch.equal(captured().tensor("y_grad.0.debug.pt"), torch.full((3,), 5.0))


def test_saved_variables_are_on_disk_before_any_stop(debug: Debug, captured: Read) -> None:
    debug("statistics", "debug")
    save(torch.ones(2), "x")
    save(torch.ones(2), "x")

    assert list(captured().json("debug.json")["data"]) == [
        "x.0.debug",
        "x_grad.0.debug",
        "x.1.debug",
        "x_grad.1.debug",
    ]


def test_variables_of_other_kinds_are_refused(debug: Debug) -> None:
    debug("statistics", "debug")
    with pytest.raises(UsageError, match="holds a object"):
        save([object()], "thing")


def test_save_does_nothing_at_other_levels(debug: Debug, captured: Read) -> None:
    debug("statistics", "L1")
    save(torch.ones(2), "x")
    with pytest.raises(FileNotFoundError):
        captured()
