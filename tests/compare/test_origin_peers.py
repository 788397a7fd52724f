"""A product beyond its contract, as usual kernels may be, and what the others show of it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ait_llm import DumpConfig, compare, register_hook

WIDTH, HEADS, TOKENS, LAYERS = 64, 4, 7, 2


class _Layer(nn.Module):
    """Attention without a softmax: two batched products, which is all that it has of them."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            each(x).view(TOKENS, HEADS, -1).transpose(0, 1) for each in (self.q, self.k, self.v)
        )
        scores = (q @ k.transpose(1, 2)).tanh()
        return x + self.o((scores @ v).transpose(0, 1).reshape(TOKENS, WIDTH))


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layers = nn.ModuleList(_Layer() for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class _Narrow(TorchDispatchMode):
    """Some batched products, counted from zero, are summed in the 16 bits of their inputs."""

    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self._numbers, self._next = numbers, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        if str(func) != "aten.bmm.default":
            return out
        self._next += 1
        if self._next - 1 not in self._numbers:
            return out
        left, right = args
        sums = torch.zeros_like(out)
        for k in range(left.shape[-1]):
            sums = sums + left[..., k : k + 1] * right[..., k : k + 1, :]
        return sums


def _named(folder: Path, *numbers: int) -> list[tuple[str, bool]]:
    """Who is named where some batched products are summed in 16 bits, and if for certain."""
    for name, narrow in (("golden", _Narrow()), ("mine", _Narrow(*numbers))):
        model = _Net().eval().half()
        x = torch.randn(TOKENS, WIDTH, generator=torch.Generator().manual_seed(1)).half()
        config = DumpConfig(dump_path=folder / name, operators=True, weights=True)
        with torch.no_grad(), narrow, register_hook(model, config):
            model(x)
    report = compare(folder / "golden", folder / "mine", jobs=1)
    return [(each.op, each.certain) for each in report.origins]


def test_one_product_in_16_bits_is_named_where_its_twin_and_all_others_are_not(
    tmp_path: Path,
) -> None:
    assert _named(tmp_path, 1) == [("root.layers.0.aten.bmm.default", True)]


def test_products_that_all_are_in_16_bits_are_those_of_the_machine(tmp_path: Path) -> None:
    assert _named(tmp_path, 0, 1, 2, 3) == []


def test_products_of_one_shape_that_all_are_in_16_bits_may_be_a_kernel_for_it(
    tmp_path: Path,
) -> None:
    assert _named(tmp_path, 1, 3) == []


def test_a_healthy_run_names_nobody(tmp_path: Path) -> None:
    assert _named(tmp_path) == []
