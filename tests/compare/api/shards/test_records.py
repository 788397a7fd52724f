"""Which calls of two sides are the same."""

from __future__ import annotations

from ait_llm.compare.api.shards.records import match_calls


def test_a_module_may_have_another_class() -> None:
    found = match_calls(
        ["Module.layers.0.up.Linear.forward.0"],
        ["Module.layers.0.up.ColumnParallelLinear.forward.0"],
    )
    assert len(found.pairs) == 1


def test_calls_that_one_side_adds_do_not_shift_the_others() -> None:
    few = ["Functional.embedding.0.forward", "Torch.matmul.0.forward", "Torch.sub.0.forward"]
    many = [
        "Torch.sub.0.forward",  # of the mask
        "Functional.embedding.0.forward",
        "Distributed.all_reduce.0.forward",
        "Torch.matmul.0.forward",
        "Torch.sub.1.forward",
    ]
    found = match_calls(few, many)
    assert found.pairs == (
        ("Functional.embedding.0.forward", "Functional.embedding.0.forward"),
        ("Torch.matmul.0.forward", "Torch.matmul.0.forward"),
        ("Torch.sub.0.forward", "Torch.sub.1.forward"),
    )
    assert found.many_only == ("Torch.sub.0.forward",)
    assert found.communication == ("Distributed.all_reduce.0.forward",)
    assert found.few_only == ()


def test_what_only_the_whole_side_does_is_listed() -> None:
    found = match_calls(["Torch.relu.0.forward", "Torch.exp.0.forward"], ["Torch.exp.0.forward"])
    assert found.few_only == ("Torch.relu.0.forward",)


def test_backward_calls_are_matched_as_forward_ones_are() -> None:
    names = ["Torch.exp.0.forward", "Torch.exp.0.backward", "Module.a.Net.backward.1"]
    assert match_calls(names, names).pairs == tuple(zip(names, names, strict=True))
