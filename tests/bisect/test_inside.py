"""From the module that is named to the operator, definition or weight in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from bisect_programs import InProcess, search
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from ait_llm.bisect import Budget

WIDTH = 16


class Attention(nn.Module):
    """Attention in the code of a module, between its projections."""

    def __init__(self) -> None:
        super().__init__()
        self.scaling = 0.25
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.share, self.sees_all = 1.0, False

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        scores = q @ k.transpose(-1, -2) * self.scaling
        if not self.sees_all:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -30.0)
        weights = functional.softmax(scores, dim=-1)
        if self.share != 1:
            weights = weights * self.share
        return self.o_proj(weights @ v)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Embedding(16, WIDTH)
        self.layers = nn.ModuleList(Attention() for _ in range(3))
        self.head = nn.Linear(WIDTH, 16)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def broken(kernel: str, nth: int) -> nn.Module:
    """The model with a kernel that computes something else the nth time that it runs."""

    class Kernels(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            found = func(*args, **(kwargs or {}))
            if str(func) == kernel:
                self.count += 1
                if self.count == nth:
                    found = found * 1.05
            return found

    class Broken(Model):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            with Kernels():  # below the capture, which begins when the call is made
                return super().__call__(*args, **kwargs)

    return Broken()


def changed(change: Callable[[Attention], None]) -> nn.Module:
    model = Model()
    layer = model.layers[1]
    assert isinstance(layer, Attention)
    change(layer)
    return model


def scaling(layer: Attention) -> None:
    layer.scaling = 1.0


def formula(layer: Attention) -> None:
    layer.share = 1.02


def mask(layer: Attention) -> None:
    layer.sees_all = True


def weight(layer: Attention) -> None:
    layer.v_proj.weight.data *= 1.05


IN_ATTENTION = "root.layers.1"


@pytest.mark.parametrize(
    ("mine", "operator", "evidence"),
    [
        (
            lambda: changed(scaling),
            f"{IN_ATTENTION}.aten.mul.Tensor",
            f"`scaling` of `{IN_ATTENTION}` is 1.0 instead of 0.25; ",
        ),
        (
            lambda: changed(weight),
            f"{IN_ATTENTION}.v_proj.aten.addmm.default",
            f"`weight` of `{IN_ATTENTION}.v_proj` is not that of golden, 100 % of its elements",
        ),
    ],
    ids=["number", "weight"],
)
def test_a_definition_ends_with_its_name(
    tmp_path: Path, mine: Callable[[], nn.Module], operator: str, evidence: str
) -> None:
    result = search(tmp_path, InProcess(mine=mine, golden=Model))
    assert (result.status, result.exit_code) == ("found", 1)
    assert result.origin is not None
    assert (result.origin.op, result.origin.certain) == (operator, True)
    assert evidence in result.origin.evidence


def test_a_wrong_kernel_in_the_code_of_a_module_is_named(tmp_path: Path) -> None:
    runner = InProcess(mine=lambda: broken("aten._softmax.default", 2), golden=Model)
    result = search(tmp_path, runner)
    assert (result.status, result.module) == ("found", IN_ATTENTION)
    assert result.origin is not None
    assert (result.origin.op, result.origin.certain) == (
        f"{IN_ATTENTION}.aten._softmax.default",
        True,
    )
    assert "from its own inputs recomputed" in result.origin.evidence
    assert result.operators == (
        tmp_path / "out" / "golden_operators",
        tmp_path / "out" / "mine_operators",
    )


@pytest.mark.parametrize("change", [mask, formula])
def test_another_formula_is_found_in_the_code_that_has_it(
    tmp_path: Path, change: Callable[[Attention], None]
) -> None:
    result = search(tmp_path, InProcess(mine=lambda: changed(change), golden=Model))
    assert (result.status, result.module) == ("found", IN_ATTENTION)
    assert result.origin is not None
    assert result.origin.certain
    assert result.origin.op.startswith(f"{IN_ATTENTION}.aten.")


class Turning(nn.Module):
    """Heads that are turned by their positions, in code without a product or a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.o_proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.change = ""

    def forward(self, x: Tensor) -> Tensor:
        heads = self.q_proj(x).view(1, -1, 4, WIDTH // 4).transpose(1, 2)
        angles = torch.arange(heads.shape[2], device=x.device)[:, None] * torch.ones(WIDTH // 4)
        if self.change == "order":
            heads = heads[:, [1, 0, 2, 3]]
        sines = angles.sin()
        if self.change == "sign":
            sines = -sines
        first, second = heads.chunk(2, -1)
        turned = heads * angles.cos() + torch.cat((-second, first), dim=-1) * sines
        return self.o_proj(turned.transpose(1, 2).reshape(x.shape))


def turning(change: str = "") -> nn.Module:
    model = Model()
    torch.manual_seed(4)
    model.layers = nn.ModuleList(Turning() for _ in range(3))
    layer = model.layers[1]
    assert isinstance(layer, Turning)
    layer.change = change
    return model


@pytest.mark.parametrize(
    ("change", "operator"), [("order", "aten.index.Tensor"), ("sign", "aten.neg.default")]
)
def test_an_operator_that_golden_does_not_call_is_told_where_nothing_else_is_known(
    tmp_path: Path, change: str, operator: str
) -> None:
    result = search(tmp_path, InProcess(mine=lambda: turning(change), golden=turning))
    assert (result.status, result.module) == ("found", IN_ATTENTION)
    assert result.origin is not None
    assert result.origin.certain
    assert operator in f"{result.origin.op} {result.origin.evidence}"
    assert "inherited" not in result.origin.evidence


def test_operators_beyond_the_budget_are_not_captured(tmp_path: Path) -> None:
    needed = search(tmp_path / "a", InProcess(mine=lambda: changed(scaling), golden=Model))
    so_far = sum(run.written or 0 for run in needed.runs[:5])
    runner = InProcess(mine=lambda: changed(scaling), golden=Model)
    result = search(tmp_path / "b", runner, Budget(bytes=so_far + 5000))
    assert len(runner.asked) == 5
    assert result.written <= so_far + 5000
    assert result.origin is not None
    assert result.origin.op == IN_ATTENTION
    assert "raise --budget" in result.notes[-1]


@pytest.mark.parametrize("number", [5, 6, 7])
def test_a_program_that_does_not_run_again_keeps_the_module_and_is_told_once(
    tmp_path: Path, number: int
) -> None:
    runner = InProcess(mine=lambda: changed(scaling), golden=Model, exit_code={number: 7})
    result = search(tmp_path, runner)
    assert result.origin is not None
    assert result.origin.op == IN_ATTENTION
    assert len(runner.asked) == number
    told = [note for note in result.notes if "did not run again" in note]
    assert len(told) == 1
    assert "exit code 7" in told[0]


def test_equal_programs_have_nothing_to_look_into(tmp_path: Path) -> None:
    runner = InProcess(mine=Model, golden=Model)
    assert search(tmp_path, runner).status == "equal"
    assert len(runner.asked) == 2


def _rounded(kind: str) -> Callable[[], nn.Module]:
    """The model with an attention that rounds to bfloat16 on its way."""

    class Rounded(Attention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
            scores = q @ k.transpose(-1, -2) * self.scaling
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -30.0)
            if kind == "softmax":
                weights = functional.softmax(scores.bfloat16(), dim=-1).float()
            else:
                weights = functional.softmax(scores, dim=-1).bfloat16().float()
            return self.o_proj(weights @ v)

    def made() -> nn.Module:
        model = Model()
        layer = Rounded()
        layer.load_state_dict(model.layers[1].state_dict())
        model.layers[1] = layer
        return model

    return made


@pytest.mark.parametrize(
    ("kind", "operator", "evidence"),
    [
        ("softmax", "aten._softmax.default", "it computes in bfloat16, and golden's in float32"),
        ("cast", "aten._to_copy.default", "it rounds to bfloat16, and golden's code to nothing"),
    ],
)
def test_an_operator_that_computes_in_a_coarser_type_than_golden_s_is_named(
    tmp_path: Path, kind: str, operator: str, evidence: str
) -> None:
    result = search(tmp_path, InProcess(mine=_rounded(kind), golden=Model))
    assert (result.status, result.exit_code) == ("found", 1)
    assert result.origin is not None
    assert (result.origin.op, result.origin.certain) == (f"{IN_ATTENTION}.{operator}", True)
    assert evidence in result.origin.evidence


def test_a_program_in_a_coarser_type_is_not_told_for_its_types(tmp_path: Path) -> None:
    def coarse() -> nn.Module:
        return changed(scaling).bfloat16()

    result = search(tmp_path, InProcess(mine=coarse, golden=Model))
    assert result.origin is None or "bfloat16" not in result.origin.evidence


def test_two_weights_that_show_in_no_value_are_told_apart(tmp_path: Path) -> None:
    def dead(column: float) -> nn.Module:
        model = Model()
        model.embed.weight.data[:, 7] = 0
        layer = model.layers[0]
        assert isinstance(layer, Attention)
        layer.q_proj.weight.data[:, 7] = column
        return model

    result = search(tmp_path, InProcess(mine=lambda: dead(1), golden=lambda: dead(0)))
    assert (result.status, result.exit_code) == ("found", 1)
    assert result.origin is not None
    assert result.origin.kind == "other weight"
    assert "`weight` of `root.layers.0.q_proj` is not that of golden" in result.origin.evidence
    assert "1 instead of 0" in result.origin.evidence


@pytest.mark.parametrize(
    ("scale", "said"),
    [(1.0, "powers of a rope theta of 500000 instead of 10000"), (0.5, "is not that of golden")],
)
def test_frequencies_that_are_powers_of_another_theta_are_told_by_both(
    tmp_path: Path, scale: float, said: str
) -> None:
    def rotary(theta: float, scale: float = 1.0) -> nn.Module:
        class Rotary(Model):
            def forward(self, input_ids: Tensor) -> Tensor:
                angles = torch.arange(input_ids.shape[-1])[:, None] * self.inv_freq
                x = self.embed(input_ids) * torch.cat((angles.cos(), angles.sin()), -1)
                return self.head(x)

        model = Rotary()
        frequencies = theta ** -(torch.arange(0, WIDTH, 2) / WIDTH)
        model.register_buffer("inv_freq", frequencies * scale, persistent=False)
        return model

    runner = InProcess(mine=lambda: rotary(5e5, scale), golden=lambda: rotary(1e4))
    result = search(tmp_path, runner)
    assert (result.status, result.exit_code) == ("found", 1)
    assert result.origin is not None
    assert result.origin.kind == "other weight"
    assert said in result.origin.evidence
    assert ("theta" in result.origin.evidence) is (scale == 1)
