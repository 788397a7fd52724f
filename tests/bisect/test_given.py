"""What the programs are given: other tokens, other masks, and padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from bisect_programs import InProcess, search
from torch import Tensor, nn

from ait_llm.bisect import Budget

WIDTH = 8


class Attention(nn.Module):
    """Attention that hides padding; rows that see nothing are zero, or as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.clears, self.share = True, 1.0

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        seen = attention_mask[:, None].bool().expand(-1, x.shape[1], -1).tril()
        weights = (q @ k.transpose(-1, -2)).masked_fill(~seen, -1e9).softmax(-1)
        if self.clears:
            weights = weights * seen.any(-1, keepdim=True)
        return self.o_proj(weights @ v * self.share)


class Padded(nn.Module):
    def __init__(self, *, clears: bool = True, share: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.embed = nn.Embedding(32, WIDTH)
        self.layers = nn.ModuleList(Attention() for _ in range(3))
        self.head = nn.Linear(WIDTH, 32)
        for layer in self.layers:
            assert isinstance(layer, Attention)
            layer.clears = clears
        layer.share = share

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.embed(input_ids)
        for layer in self.layers:
            x = x + layer(x, attention_mask)
        return self.head(x)


def prompts(ids: int = 9, first: int = 3) -> dict[str, Tensor]:
    tokens = torch.arange(1, 17).reshape(2, 8) % 32
    tokens[0, 5] = ids
    mask = torch.ones_like(tokens)
    mask[1, :first] = 0
    return {"input_ids": tokens, "attention_mask": mask}


@pytest.mark.parametrize(
    ("mine", "said"),
    [
        (prompts(ids=11), "`input_ids` of `root` differ at position [0, 5]: 11 instead of 9"),
        (prompts(first=2), "`attention_mask` of `root` hides position [1, 2] only in golden"),
        (prompts(first=0), "`attention_mask` of `root` hides position [1, 0]"),
    ],
    ids=["ids", "mask", "no mask"],
)
def test_another_input_of_the_program_is_found_and_told(
    tmp_path: Path, mine: dict[str, Any], said: str
) -> None:
    given = {"mine": mine, "golden": prompts()}
    result = search(tmp_path, InProcess(Padded, Padded, given=given.__getitem__))
    assert (result.status, result.exit_code) == ("found", 1)
    assert result.origin is not None
    assert (result.origin.kind, result.origin.op) == ("other input", "root")
    assert said in result.origin.evidence


def test_rows_of_padding_accuse_nobody(tmp_path: Path) -> None:
    runner = InProcess(lambda: Padded(clears=False), Padded, given=lambda _: prompts())
    result = search(tmp_path, runner)
    assert (result.status, result.exit_code, result.origin) == ("equal", 0, None)


def test_a_fault_beside_padding_is_found(tmp_path: Path) -> None:
    runner = InProcess(lambda: Padded(clears=False, share=1.05), Padded, given=lambda _: prompts())
    result = search(tmp_path, runner)
    assert result.exit_code in (1, 3)
    assert result.origin is not None
    assert result.origin.op.startswith("root.layers.2")


def test_padding_without_budget_for_values_is_undecided(tmp_path: Path) -> None:
    def runner() -> InProcess:
        return InProcess(lambda: Padded(clears=False), Padded, given=lambda _: prompts())

    whole = search(tmp_path / "a", runner())
    so_far = sum(run.written or 0 for run in whole.runs[:4])
    result = search(tmp_path / "b", runner(), Budget(bytes=so_far + 4000))
    assert (result.status, result.exit_code) == ("undecided", 3)
    assert "raise --budget" in result.notes[-1]
