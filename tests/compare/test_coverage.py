"""What makes a comparison incomplete, and what no comparison can look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.compare import compare
from ait_llm.compare.coverage import mark_not_comparable, uncompared_parts
from ait_llm.core import DType
from ait_llm.core.comparison import Comparison, Report, Side, TensorRecord, Verdict


def record(
    op: str,
    name: str = "output",
    order: int = 0,
    step: int = 0,
    graph: str = "",
    shape: tuple[int, ...] | None = None,
) -> TensorRecord:
    return TensorRecord(
        op=op,
        op_id="0",
        op_type="Block",
        name=name,
        role="out",
        index=0,
        path="",
        dtype=DType.FLOAT32,
        order=order,
        step=step,
        graph=graph,
        shape=shape,
    )


def pair(
    op: str, order: int = 0, verdict: Verdict = Verdict.PASS, graphs: tuple[str, str] = ("", "")
) -> Comparison:
    golden, mine = (record(op, order=order, graph=graph) for graph in graphs)
    return Comparison(golden, mine, verdict)


def alone(op: str, order: int = 0, **fields: object) -> Comparison:
    own = record(op, order=order, graph=str(fields.pop("graph", "")))
    return Comparison(own, None, Verdict.SKIPPED, "no counterpart", **fields)  # type: ignore[arg-type]


def report(comparisons: list[Comparison]) -> Report:
    side = Side("dump", "torch")
    return Report(side, side, "torch-torch", mark_not_comparable(comparisons))


def test_what_no_layer_has_a_counterpart_of_decides_nothing() -> None:
    found = report([pair("m.layers.0"), alone("m.layers.0.rotary"), alone("m.layers.1.rotary", 2)])
    assert (found.missing, found.not_comparable) == (0, 2)
    assert found.exit_code() == 0
    assert found.exit_code(strict=True) == 3


def test_what_another_layer_has_a_counterpart_of_is_missing() -> None:
    found = report([pair("m.layers.0.norm"), alone("m.layers.1.norm", 2)])
    assert found.missing == 1
    assert found.exit_code() == 3
    assert found.exit_code(allow_skip=True) == 0


def across(golden: str, mine: str, shape: tuple[int, ...] = (2, 4)) -> Comparison:
    return Comparison(record(golden, shape=shape), record(mine, shape=shape), Verdict.PASS)


def only_mine(op: str, shape: tuple[int, ...] = (2, 4)) -> Comparison:
    return Comparison(None, record(op, order=9, shape=shape), Verdict.SKIPPED, "no counterpart")


def test_what_answers_the_other_layer_must_have_been_compared_here() -> None:
    pairs = [across("m.layers.0.norm", "t.h.0.norm"), across("m.layers.0.up", "t.h.0.fc_1")]
    assert report([*pairs, only_mine("t.h.1.norm")]).missing == 1
    other = across("m.layers.1.norm", "t.h.1.other")
    assert report([*pairs, other, only_mine("t.h.1.norm")]).missing == 0
    # one mask of all layers
    shared = [across("m.mask", "t.h.0.mask"), only_mine("t.h.1.mask")]
    assert report([*pairs, *shared]).missing == 0


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        ("t.h.1.fc_2", (2, 4)),  # not the other layer's fc_1
        ("t.h.1.fc_1", (2, 4, 4)),  # another operator of the same name
        ("t.h.1.fc_1", (0, 4)),  # no token came to this expert
    ],
)
def test_what_is_no_tensor_of_another_layer_is_not_missing(op: str, shape: tuple[int, ...]) -> None:
    pairs = [across("m.layers.0.up", "t.h.0.fc_1")]
    assert report([*pairs, only_mine("t.h.1.fc_1")]).missing == 1
    assert report([*pairs, only_mine(op, shape)]).missing == 0


@pytest.mark.parametrize(
    ("op", "op_type", "is_layer"),
    [
        ("Module.conv2.Conv2d.forward.0", "Conv2d", True),
        ("Functional.conv1d.3.forward", "conv1d", False),
        (
            "root.head._c10d_functional.all_reduce.default",
            "_c10d_functional.all_reduce.default",
            False,
        ),
    ],
)
def test_the_number_in_the_name_of_a_function_is_no_layer(
    op: str, op_type: str, is_layer: bool
) -> None:
    own = replace(record(op, order=3), op_type=op_type)
    alone_here = Comparison(own, None, Verdict.SKIPPED, "no counterpart")
    assert (
        bool(list(uncompared_parts([pair("root.other", 1), alone_here, pair("root", 9)])))
        is is_layer
    )


@pytest.mark.parametrize("compared", [True, False])
def test_a_conversion_in_a_numbered_module_is_no_layer_of_its_own(compared: bool) -> None:
    """Autocast converts weights, which a program in 16 bits does not."""
    name = "root.encoder.conv2.aten._to_copy.default"
    own = replace(record(name, order=3), op_type="aten._to_copy.default")
    alone_here = Comparison(own, None, Verdict.SKIPPED, "no counterpart")
    module = pair("root.encoder.conv2", 4) if compared else alone("root.encoder.conv2", 4)
    found = uncompared_parts([alone_here, module, pair("root", 9)])
    text = "nothing was compared of root.encoder.conv2"
    assert [each.text for each in found] == ([] if compared else [text])


def test_what_was_lost_is_missing() -> None:
    assert report([pair("m.layers.0"), alone("m.other", 1, lost=True)]).exit_code() == 3


def test_a_node_is_missing_where_the_other_side_is_a_graph_too() -> None:
    node = alone("add", 1, graph="graph_0")
    assert report([pair("mul", graphs=("graph_0", "graph_0")), node]).exit_code() == 3
    assert report([pair("mul", graphs=("graph_0", "")), node]).exit_code() == 0


def test_a_node_that_can_have_no_counterpart_is_not_missing() -> None:
    node = alone("add", 1, graph="graph_0", comparable=False)
    found = report([pair("mul", graphs=("graph_0", "graph_0")), node])
    assert (found.exit_code(), found.not_comparable) == (0, 1)
    assert found.exit_code(strict=True) == 3


def test_launches_of_one_kernel_are_no_layers() -> None:
    launches = [alone(f"extern_kernels.mm.{number}", number, graph="graph_0") for number in (1, 2)]
    assert not list(uncompared_parts([pair("m.layers.0"), *launches]))


def test_an_operation_that_is_missing_as_a_whole_counts_between_runs_of_one_library() -> None:
    items = [pair("m.layers.0"), alone("m.other", 1)]
    assert [one.comparable for one in mark_not_comparable(items, one_library=True)] == [True, True]
    assert [one.comparable for one in mark_not_comparable(items)] == [True, False]


def test_a_pair_that_could_not_be_read_is_missing() -> None:
    assert report([pair("m.a"), pair("m.b", 1, Verdict.SKIPPED)]).exit_code() == 3


def test_a_layer_without_any_compared_tensor_is_named() -> None:
    found = list(
        uncompared_parts([pair("m.layers.0.norm"), alone("m.layers.1.norm", 3), pair("m.head", 9)])
    )
    assert [(each.side, each.text) for each in found] == [
        ("golden", "nothing was compared of m.layers.1")
    ]
    assert found[0].decides


def test_results_that_were_not_compared_are_named() -> None:
    found = list(uncompared_parts([pair("m.layers.0.norm"), alone("m.head", 9)]))
    assert [each.text for each in found] == ["nothing was compared of m.head"]


def test_the_last_module_is_not_what_a_program_returns_where_that_was_compared() -> None:
    items = [pair("root.layers.0.norm"), alone("root.head", 9)]
    assert list(uncompared_parts(items))
    assert not list(uncompared_parts([*items, pair("root", 10)]))


def test_steps_are_looked_at_one_by_one() -> None:
    late = Comparison(record("m.layers.0", step=1), None, Verdict.SKIPPED, "no counterpart")
    found = list(uncompared_parts([pair("m.layers.0"), late]))
    assert [each.text for each in found] == ["nothing was compared of m.layers.0 in step 1"]


class Net(nn.Module):
    """Makes probabilities by one operator, or by three."""

    def __init__(self, written_out: bool) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.written_out = written_out

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if self.written_out:
            powers = torch.exp(y - y.amax(-1, keepdim=True))
            y = powers / powers.sum(-1, keepdim=True)
        else:
            y = torch.softmax(y, -1)
        return self.second(y) + torch.zeros(0, 8).sum()


def test_programs_that_write_one_thing_in_two_ways_are_comparable(tmp_path: Path) -> None:
    for word, written_out in (("golden", False), ("mine", True)):
        net = Net(written_out).eval()
        config = DumpConfig(dump_path=tmp_path / word, operators=True, weights=True)
        with torch.no_grad(), register_hook(net, config):
            net(torch.linspace(-1, 1, 16).view(2, 8))
    found = compare(tmp_path / "golden", tmp_path / "mine")
    assert found.counts[Verdict.FAIL] == 0
    assert found.not_comparable > 0
    assert found.exit_code() == 0
    assert found.exit_code(strict=True) == 3


def test_the_number_of_a_modules_call_is_no_layer() -> None:
    name = "Module.model.{}.forward.0"
    found = report([pair(name.format("layers.0.Block")), alone(name.format("rotary_emb.Rotary"))])
    assert list(uncompared_parts(found.comparisons)) == []
    found = report([pair(name.format("layers.0.Block")), alone(name.format("layers.1.Block"), 1)])
    assert [each.text for each in uncompared_parts(found.comparisons)] == [
        "nothing was compared of Module.model.layers.1"
    ]


class Followed(nn.Module):
    """Two linears, and an operation on their result."""

    def __init__(self, last: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self._last = last

    def forward(self, x: Tensor) -> Tensor:
        return self._last(self.second(torch.relu(self.first(x))))


def _followed(folder: Path, last: Callable[[Tensor], Tensor], *, modules: bool) -> Path:
    config = DumpConfig(dump_path=folder, operators=True, modules=modules)
    net = Followed(last).eval()
    with torch.no_grad(), register_hook(net, config):
        net(torch.linspace(-1, 1, 16).view(2, 8))
    return folder


def _fp8(y: Tensor) -> Tensor:
    return y.to(torch.float8_e4m3fn)


LASTS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], str]] = {
    "float": (lambda y: y, torch.tanh, "tanh.default"),
    "int": (lambda y: y.argmax(-1), lambda y: y.argmax(-1) + 1, "add.Tensor"),
    "bool": (lambda y: y > 0, lambda y: ~(y > 0), "bitwise_not.default"),
    "complex": (
        lambda y: torch.view_as_complex(y.view(2, 4, 2)),
        lambda y: torch.view_as_complex(y.view(2, 4, 2)).exp(),
        "exp.default",
    ),
}


@pytest.mark.parametrize("whose", ["golden", "mine"])
@pytest.mark.parametrize("kind", LASTS)
def test_a_last_operator_that_only_one_side_has_is_missing_whatever_its_type(
    tmp_path: Path, kind: str, whose: str
) -> None:
    short, long, name = LASTS[kind]
    other = "mine" if whose == "golden" else "golden"
    sides = {
        whose: _followed(tmp_path / whose, long, modules=False),
        other: _followed(tmp_path / other, short, modules=False),
    }
    found = compare(sides["golden"], sides["mine"], jobs=1)
    assert found.exit_code() == 3
    assert [(each.side, each.text) for each in found.problems] == [
        (whose, f"nothing was compared of root.aten.{name}")
    ]


@pytest.mark.parametrize("whose", ["golden", "mine"])
def test_a_last_step_of_only_one_side_is_told_as_code_where_the_results_are_comparable(
    tmp_path: Path, whose: str
) -> None:
    sides = {
        name: _followed(
            tmp_path / name,
            (lambda y: _fp8(-_fp8(y).float())) if name == whose else _fp8,
            modules=False,
        )
        for name in ("golden", "mine")
    }
    found = compare(sides["golden"], sides["mine"], jobs=1)
    (origin,) = found.origins
    assert (found.exit_code(), origin.kind) == (1, "code between modules")
    assert "aten.neg.default" in origin.evidence


def test_a_result_of_another_type_is_no_counterpart(tmp_path: Path) -> None:
    golden = _followed(tmp_path / "golden", lambda y: y, modules=True)
    mine = _followed(tmp_path / "mine", lambda y: y.argmax(-1), modules=True)
    found = compare(golden, mine, jobs=1)
    assert found.exit_code() == 3
    assert [each.text for each in found.problems] == [
        "nothing was compared of root.aten.argmax.default"
    ]


def test_a_program_may_count_places_behind_its_results(tmp_path: Path) -> None:
    def counting(y: Tensor) -> Tensor:
        torch.arange(8).cumsum(0)
        return y

    golden = _followed(tmp_path / "golden", lambda y: y, modules=True)
    mine = _followed(tmp_path / "mine", counting, modules=True)
    assert compare(golden, mine, jobs=1).exit_code() == 0


@pytest.mark.parametrize(
    ("golden", "mine", "words"),
    [
        ((0, 4), (0, 5), "has the shape [0, 5] instead of [0, 4]"),
        ((3, 4), (3, 2), "has the shape [3, 2] instead of [3, 4]"),
        ((3, 4), (3, 4), ""),
    ],
)
def test_results_of_other_shapes_are_told_empty_ones_too(
    tmp_path: Path, golden: tuple[int, ...], mine: tuple[int, ...], words: str
) -> None:
    sides = [
        _followed(tmp_path / side, lambda y, n=shape: (y, torch.zeros(n)), modules=True)
        for side, shape in (("golden", golden), ("mine", mine))
    ]
    found = compare(*sides, jobs=1)
    assert found.exit_code() == (3 if words else 0)
    assert [each.text for each in found.problems] == (
        [f"outtensor1 of root {words}"] if words else []
    )


def test_whole_numbers_of_another_type_are_the_same(tmp_path: Path) -> None:
    golden = _followed(tmp_path / "golden", lambda y: y.argmax(-1) + 1, modules=True)
    mine = _followed(tmp_path / "mine", lambda y: y.argmax(-1).int() + 1, modules=True)
    assert compare(golden, mine, jobs=1).exit_code() == 0


@pytest.mark.parametrize(("width", "is_missing"), [(128, False), (256, True)])
def test_an_engine_may_return_hidden_states_and_make_golden_s_result_of_them_later(
    width: int, is_missing: bool
) -> None:
    logits = record("root", order=1, shape=(1, 256))
    made = record("root.logits_processor", order=9, shape=(1, 256))
    returned = record("root", order=1, shape=(24, width))
    items = [
        pair("root.layers.0.norm", 2),
        Comparison(logits, made, Verdict.PASS),
        Comparison(None, returned, Verdict.SKIPPED, "no counterpart", comparable=False),
    ]
    told = [each.text for each in uncompared_parts(items)]
    assert told == (["nothing was compared of root in step 0"] if is_missing else [])
