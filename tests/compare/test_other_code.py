"""Programs whose code does something else than golden's, though no number and no weight says so.

Each program is a real model of ``transformers`` of which one line is another; golden is the same
model without it. Every operator computes rightly what it is given, so that only the way it is
called can be wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from bugs.places import Numbering, Place, Places
from matching_truth import families
from matching_truth.drives import DRIVES, once
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import Origin

Replace = Callable[..., Any]


class _Otherwise(TorchFunctionMode):
    """Calls something else instead of one call of a function in the code of one module."""

    def __init__(self, places: Places, path: str, what: str, call: int, replace: Replace) -> None:
        super().__init__()
        self._numbering, self._replace = Numbering(places), replace
        self._place = Place(0, path, what, call)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.strip("_").removeprefix("r" if func.__name__ == "__radd__" else "")
        if self._numbering.next(name) == self._place:
            return self._replace(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _captured(
    folder: Path,
    family: str,
    attention: str = "eager",
    change: tuple[str, str, int, Replace] | None = None,
    *,
    operators: bool = True,
) -> Path:
    torch.manual_seed(7)
    model = families.make(family, "distinct", attention).eval()
    config = DumpConfig(dump_path=folder, operators=operators, weights=True)
    with torch.no_grad(), register_hook(model, config):
        if change is None:
            DRIVES.get(family, once)(model)
        else:
            places = Places(model)
            with places, _Otherwise(places, *change):
                DRIVES.get(family, once)(model)
    return folder


def _origin(folder: Path, family: str, change: tuple[str, str, int, Replace]) -> Origin:
    golden = _captured(folder / "golden", family)
    mine = _captured(folder / "mine", family, change=change)
    (origin,) = compare(golden, mine, jobs=1).origins
    return origin


def _first(func: Replace, one: Any, *_: Any, **__: Any) -> Any:
    return one


def _second(func: Replace, one: Any, other: Any, *_: Any, **__: Any) -> Any:
    return other


def _varied(func: Replace, one: Tensor, *args: Any, **kwargs: Any) -> Any:
    return func(one - func(one, *args, **kwargs), *args, **kwargs)


def _swapped(func: Replace, one: Tensor, *args: Any, **kwargs: Any) -> Any:
    return func(one.transpose(1, 2), *args, **kwargs)


def test_a_mask_that_is_not_added_is_told_by_what_the_softmax_reads(tmp_path: Path) -> None:
    change = ("model.layers.0.self_attn", "add", 2, _first)
    origin = _origin(tmp_path, "llama", change)
    assert (origin.op, origin.certain) == ("root.model.layers.0.self_attn", True)
    assert origin.kind == "code between modules"
    assert "hides [0, 1], [0, 2], [0, 3] and" in origin.evidence
    assert "only in golden (query, key)" in origin.evidence


def test_a_norm_of_something_else_is_no_error_that_grew(tmp_path: Path) -> None:
    """A mean of what it was taken off amplifies every rounding without bounds."""
    change = ("model.layers.1.self_attn.q_norm", "mean", 0, _varied)
    origin = _origin(tmp_path, "qwen3-moe", change)
    assert (origin.op, origin.certain) == ("root.model.layers.1.self_attn.q_norm", True)
    assert "`aten.mean.dim@1` reads what `aten.sub.Tensor` makes" in origin.evidence
    assert "golden's reads what `aten.pow.Tensor_Scalar` makes" in origin.evidence


def test_a_scale_that_is_left_out_is_seen_beside_the_numbers_of_a_mask(tmp_path: Path) -> None:
    change = ("model.layers.0.self_attn", "mul", 4, _first)
    origin = _origin(tmp_path, "mixtral", change)
    assert origin.op.startswith("root.model.layers.0.self_attn")
    assert "softmax" not in origin.op
    assert origin.certain


def test_a_residual_that_is_left_out_is_looked_for_in_its_layer(tmp_path: Path) -> None:
    origin = _origin(tmp_path, "mamba", ("backbone.layers.1", "add", 0, _second))
    assert (origin.op, origin.kind) == ("root.backbone.layers.1", "code between modules")


def test_a_residual_that_is_left_out_is_not_told_of_the_block_around_its_layer(
    tmp_path: Path,
) -> None:
    """What the last member makes is then the result of the layer and of the block, too."""
    change = ("decoder.block.1.layer.2", "add", 0, _second)
    golden = _captured(tmp_path / "golden", "t5", operators=False)
    mine = _captured(tmp_path / "mine", "t5", change=change, operators=False)
    (origin,) = compare(golden, mine, jobs=1).origins
    assert origin.op == "root.decoder.block.1.layer.2"


@pytest.mark.parametrize(
    ("family", "change", "lacks", "makes"),
    [
        ("qwen3-moe", ("model.layers.0", "add", 1, _second), "aten.add.Tensor@1", "aten.sum.dim"),
        ("mixtral", ("model.layers.0.mlp.gate", "div", 0, _first), "aten.div_", "aten.topk"),
    ],
)
def test_a_step_that_is_left_out_is_told_of_the_code_and_not_of_the_operator_before(
    family: str, change: tuple[str, str, int, Replace], lacks: str, makes: str, tmp_path: Path
) -> None:
    origin = _origin(tmp_path, family, change)
    assert (origin.op, origin.kind) == (f"root.{change[0]}", "code between modules")
    assert f"hands on what `{makes}" in origin.evidence
    assert f"golden's makes `{lacks}" in origin.evidence


def test_a_sum_that_the_next_layer_leaves_out_is_told_of_that_layer(tmp_path: Path) -> None:
    """What it hands on is the sum of the layer before, which is of the same kind, and right."""
    origin = _origin(tmp_path, "llama", ("model.layers.1", "add", 0, _first))
    assert (origin.op, origin.kind) == ("root.model.layers.1", "code between modules")
    assert "golden's makes `aten.add.Tensor` of it first" in origin.evidence


def test_a_buffer_of_an_earlier_layer_is_told_of_the_layer_that_hands_it_on(
    tmp_path: Path,
) -> None:
    """Its numbers are those of the earlier layer, which made them rightly."""

    class Layer(nn.Module):
        def __init__(self, stale: list[Tensor]) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 8)
            self.stale = stale

        def forward(self, x: Tensor) -> Tensor:
            made = self.up(x).tanh() * 2
            if self.stale:
                made = self.stale[0].clone()
            return x + self.down(made)

    def run(folder: Path, *, wrong: bool) -> Path:
        torch.manual_seed(1)
        kept: list[Tensor] = []
        model = nn.Sequential(Layer([]), Layer(kept))
        model[0].down.register_forward_pre_hook(
            lambda _, args: kept.append(args[0].clone()) if wrong else None
        )
        config = DumpConfig(dump_path=folder, weights=True)
        with torch.no_grad(), register_hook(model, config):
            model(torch.randn(3, 8))
        return folder

    golden, mine = run(tmp_path / "golden", wrong=False), run(tmp_path / "mine", wrong=True)
    (origin,) = compare(golden, mine, jobs=1).origins
    assert origin.op == "root.1"


def test_a_mask_that_an_operator_makes_rightly_is_told_of_the_code_that_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = _captured(tmp_path / "golden", "whisper")
    code = sys.modules[type(families.make("whisper")).__module__]
    right = code.create_causal_mask  # type: ignore[attr-defined]

    def shifted(*args: Any, **kwargs: Any) -> Tensor:
        mask = right(*args, **kwargs)
        return torch.cat([mask[..., 1:, :], mask[..., -1:, :]], -2)

    monkeypatch.setattr(code, "create_causal_mask", shifted)
    mine = _captured(tmp_path / "mine", "whisper")
    (origin,) = compare(golden, mine, jobs=1).origins
    assert (origin.op, origin.certain) == ("root.model.decoder", True)
    assert "only in golden (query, key)" in origin.evidence


def test_heads_that_are_repeated_in_another_order_are_told_by_the_module(tmp_path: Path) -> None:
    golden = _captured(tmp_path / "golden", "qwen2", "sdpa")
    change = ("model.layers.0.self_attn", "reshape", 0, _swapped)
    mine = _captured(tmp_path / "mine", "qwen2", change=change)
    (origin,) = compare(golden, mine, jobs=1).origins
    assert origin.op == "root.model.layers.0.self_attn"


@pytest.mark.parametrize("operators", [False, True])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_mask_that_shows_the_next_token_is_found_where_it_is_made(
    attention: str, operators: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Golden's attention may have been told to be causal and have no mask at all."""
    golden = _captured(tmp_path / "golden", "gpt-neox", attention, operators=operators)
    code = sys.modules[type(families.make("gpt-neox")).__module__]
    right = code.create_causal_mask  # type: ignore[attr-defined]

    def shifted(*args: Any, **kwargs: Any) -> Tensor:
        mask = right(*args, **kwargs)
        return torch.cat([mask[..., 1:, :], mask[..., -1:, :]], -2)

    monkeypatch.setattr(code, "create_causal_mask", shifted)
    mine = _captured(tmp_path / "mine", "gpt-neox", operators=operators)
    (origin,) = compare(golden, mine, jobs=1).origins
    assert origin.op.partition(".aten.")[0] == "root.gpt_neox"
    assert "hides [0, 1], [1, 2], [2, 3] and 3 more only in golden (query, key)" in origin.evidence


def test_a_cache_that_an_earlier_step_left_otherwise_is_no_certain_origin(tmp_path: Path) -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.proj = nn.Linear(8, 8, bias=False)

        def forward(self, x: Tensor, past: Tensor | None = None) -> Tensor:
            made = self.proj(x)
            return made if past is None else torch.cat([past, made], 1)

    def run(folder: Path, scale: float) -> Path:
        model = Cached()
        x = torch.randn(1, 4, 8, generator=torch.Generator().manual_seed(5))
        config = DumpConfig(dump_path=folder, operators=True, weights=True, token_range=range(2))
        with torch.no_grad(), register_hook(model, config):
            past = model(x)
            model(x[:, :1], past * scale)  # between the steps, where nothing is captured
        return folder

    (origin,) = compare(run(tmp_path / "golden", 1.0), run(tmp_path / "mine", 1.1), jobs=1).origins
    assert (origin.certain, origin.step) == (False, 1)
    assert "an earlier step may have left it so" in origin.evidence


def test_what_is_handed_on_as_hidden_states_is_no_cache(tmp_path: Path) -> None:
    """The name is that of an ordinary argument, and the code that made it is certain."""

    class Reader(nn.Module):
        def forward(self, hidden_states: Tensor) -> Tensor:
            return hidden_states * 2

    class Block(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.proj, self.reader, self._factor = nn.Linear(8, 8), Reader(), factor

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = self.reader(hidden_states=self.proj(x).tanh() * self._factor)
            return made

    def run(folder: Path, factor: float) -> Path:
        torch.manual_seed(1)
        model = Block(factor)
        with torch.no_grad(), register_hook(model, DumpConfig(dump_path=folder, weights=True)):
            model(torch.randn(3, 8))
        return folder

    golden, mine = run(tmp_path / "golden", 1.0), run(tmp_path / "mine", 1.1)
    (origin,) = compare(golden, mine, jobs=1).origins
    assert (origin.op, origin.certain) == ("root", True)


def test_what_comes_out_of_a_cache_is_no_certain_fault_of_the_code_around_its_reader(
    tmp_path: Path,
) -> None:
    """The code of a member put it there, and no capture shows when."""

    class Writer(nn.Module):
        def __init__(self, kept: dict[str, Tensor]) -> None:
            super().__init__()
            self.proj, self.kept, self.factor = nn.Linear(8, 8), kept, 1.0

        def forward(self, x: Tensor) -> Tensor:
            made = self.proj(x)
            self.kept["keys"] = made.transpose(0, 1).contiguous() * self.factor
            return x + made

    class Reader(nn.Module):
        def forward(self, x: Tensor, past_keys: Tensor) -> Tensor:
            return x @ past_keys

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept: dict[str, Tensor] = {}
            self.writer, self.reader = Writer(self.kept), Reader()

        def forward(self, x: Tensor) -> Tensor:
            return self.reader(self.writer(x), past_keys=self.kept["keys"])

    def run(folder: Path, factor: float) -> Path:
        torch.manual_seed(1)
        model = Block()
        model.writer.factor = factor
        with torch.no_grad(), register_hook(model, DumpConfig(dump_path=folder, weights=True)):
            model(torch.randn(3, 8))
        return folder

    (origin,) = compare(run(tmp_path / "golden", 1.0), run(tmp_path / "mine", 1.1), jobs=1).origins
    assert (origin.op, origin.certain) == ("root", False)


class _InSteps(TorchDispatchMode):
    """One product is rounded to few digits, by the operator itself."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left = number

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        found = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.mm.default:
            self._left -= 1
            if self._left == 0:
                step = found.abs().amax() / 127
                found = (found / step).round() * step
        return found


def test_a_product_of_few_digits_is_found_where_others_make_golden_s_bits(tmp_path: Path) -> None:
    """It is within every tolerance, and only operators like it show that no arithmetic is so."""
    v_proj = 7 + 3  # in the second layer
    for name, number in (("golden", 0), ("mine", v_proj)):
        torch.manual_seed(7)
        model = families.make("llama", "distinct", "sdpa").eval().bfloat16()
        config = DumpConfig(dump_path=tmp_path / name, operators=True, weights=True)
        with torch.no_grad(), register_hook(model, config), _InSteps(number):
            once(model)
    found = compare(tmp_path / "golden", tmp_path / "mine", jobs=1)
    (origin,) = found.origins
    assert (origin.certain, found.exit_code()) == (True, 1)
    assert origin.op == "root.model.layers.1.self_attn.v_proj.aten.mm.default"
    assert "this is within the tolerance" in origin.evidence
