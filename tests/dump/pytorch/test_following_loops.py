"""Programs that choose their tokens in a loop of their own read golden's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from generating import NEW, PROMPT, captured, generate, model
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.dump.torch_ledger import read_torch_ledger
from ait_llm.dump.torch_summary import torch_losses

GOLDEN, MINE = 1, 5  # seeds of two models that have nothing in common
OTHER = torch.tensor([[5, 13, 35, 11]])
LONG = torch.tensor([[5, 13, 35, 11, 8]])
Choose = Callable[[Tensor], Tensor]


def largest(logits: Tensor) -> Tensor:
    return logits.argmax(-1, keepdim=True)


def sampled(logits: Tensor) -> Tensor:
    return torch.multinomial(torch.softmax(logits, -1), 1)


def among_five(logits: Tensor) -> Tensor:
    values, places = logits.topk(5)
    return places.gather(-1, torch.multinomial(torch.softmax(values, -1), 1))


def uncached(made: nn.Module, ids: Tensor, choose: Choose, calls: int = NEW) -> Tensor:
    """The common loop that reads everything again; what its calls chose."""
    start = ids.shape[1]
    for _ in range(calls):
        ids = torch.cat([ids, choose(made(ids, use_cache=False).logits[:, -1])], dim=1)
    return ids[:, start:]


def cached(made: nn.Module, ids: Tensor, choose: Choose, calls: int = NEW) -> Tensor:
    """The loop with a cache."""
    cache, chosen = None, []
    for _ in range(calls):
        output = made(ids, past_key_values=cache, use_cache=True)
        cache, ids = output.past_key_values, choose(output.logits[:, -1])
        chosen.append(ids)
    return torch.cat(chosen, dim=1)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captured(model(GOLDEN), tmp_path_factory.mktemp("golden"), torch.cat([OTHER, PROMPT]))


def followed(golden: Path, folder: Path, run: Callable[[nn.Module], Tensor]) -> Tensor:
    made = model(MINE)
    config = DumpConfig(str(folder), token_range=range(99), follow=golden)
    with torch.no_grad(), register_hook(made, config):
        return run(made)


def states(folder: Path) -> list[dict[str, object]]:
    """What the ledger says of following."""
    [ledger] = folder.rglob("ledger/*.jsonl")
    found = map(json.loads, ledger.read_text().splitlines())
    return [line for line in found if line["kind"] == "follow"]


def problems(folder: Path) -> list[str]:
    """Why the command would end with 3."""
    [ledger] = folder.rglob("ledger/*.jsonl")
    process = read_torch_ledger(ledger, "")
    assert process is not None
    return torch_losses([process])


@pytest.mark.parametrize("loop", [uncached, cached])
@pytest.mark.parametrize("choose", [largest, sampled, among_five])
def test_a_loop_reads_the_tokens_of_golden(
    golden: Path, tmp_path: Path, loop: Callable[..., Tensor], choose: Choose
) -> None:
    batch = torch.cat([OTHER, PROMPT]).flip(0)
    tokens = followed(golden, tmp_path, lambda made: loop(made, batch, choose))
    told = generate(model(GOLDEN), batch.flip(0)).flip(0)
    assert torch.equal(tokens[:, :-1], told[:, :-1])  # the last choice is read by no call
    assert not problems(tmp_path)
    begun = states(tmp_path)[0]
    assert (begun["state"], begun["requests"]) == ("begun", 2)


def test_what_it_would_have_chosen_is_in_the_ledger_with_its_margin(
    golden: Path, tmp_path: Path
) -> None:
    followed(golden, tmp_path, lambda made: cached(made, PROMPT, largest))
    told = generate(model(GOLDEN), torch.cat([OTHER, PROMPT]))[1].tolist()
    found = [line for line in states(tmp_path) if line["state"] == "differs"]
    assert found
    for line in found:
        [file] = tmp_path.rglob(f"torch_tensors/*/{line['step']}/root/output_logits.pth")
        logits = torch.load(file, weights_only=True)[0, -1]
        assert line["own"] == int(logits.argmax())
        assert line["taken"] == told[int(str(line["step"]))]
        assert line["margin"] == pytest.approx(float(logits.max() - logits[line["taken"]]))


def test_a_prompt_that_is_read_in_parts_is_followed(golden: Path, tmp_path: Path) -> None:
    def run(made: nn.Module) -> Tensor:
        cache = made(PROMPT[:, :2], use_cache=True).past_key_values
        output = made(PROMPT[:, 2:], past_key_values=cache, use_cache=True)
        cache, chosen = output.past_key_values, []
        ids = largest(output.logits[:, -1])
        for _ in range(NEW - 1):
            chosen.append(ids)
            ids = largest(made(ids, past_key_values=cache, use_cache=True).logits[:, -1])
        return torch.cat(chosen, dim=1)

    tokens = followed(golden, tmp_path, run)
    told = generate(model(GOLDEN), torch.cat([OTHER, PROMPT]))[1:]
    assert torch.equal(tokens, told[:, :-1])
    assert not problems(tmp_path)


def test_another_prompt_is_refused(golden: Path, tmp_path: Path) -> None:
    followed(golden, tmp_path, lambda made: cached(made, PROMPT + 1, largest))
    [problem] = problems(tmp_path)
    assert "the prompt of request 0 is none of golden's" in problem


def test_a_program_that_ends_early_is_told(golden: Path, tmp_path: Path) -> None:
    followed(golden, tmp_path, lambda made: uncached(made, PROMPT, largest, calls=3))
    [problem] = problems(tmp_path)
    assert "the program ended request 0 by itself, 3 tokens before golden" in problem


class Packed(nn.Module):
    """An engine's model: requests lie one behind the other, and positions tell them apart."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(MINE)
        self.embed = nn.Embedding(96, 8)
        self.head = nn.Linear(8, 96)

    def forward(self, input_ids: Tensor, positions: Tensor) -> Tensor:
        return self.head(self.embed(input_ids))


def test_packed_requests_are_told_apart_by_their_positions(tmp_path: Path) -> None:
    gold = captured(model(GOLDEN), tmp_path / "golden", PROMPT, LONG)
    made, read = Packed(), []
    config = DumpConfig(str(tmp_path / "mine"), token_range=range(99), follow=gold)
    with torch.no_grad(), register_hook(made, config):
        made(torch.zeros(8, dtype=torch.int64), torch.arange(8))  # warm-up
        made(torch.cat([PROMPT[0], LONG[0]]), torch.cat([torch.arange(4), torch.arange(5)]))
        for step in range(NEW - 1):
            ids = torch.full((2,), 7)
            made(ids, torch.tensor([4 + step, 5 + step]))
            read.append(ids)
    told = [generate(model(GOLDEN), each)[0, :-1] for each in (PROMPT, LONG)]
    assert torch.equal(torch.stack(read, dim=1), torch.stack(told))
    assert not problems(tmp_path / "mine")


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        ([[4, 5], [6, 5]], "the requests of a batch changed places"),
        ([[4, 5], [5]], "the batch went from 2 requests to 1"),
    ],
)
def test_a_batch_of_which_nobody_knows_who_is_who_is_refused(
    tmp_path: Path, places: list[list[int]], reason: str
) -> None:
    gold = captured(model(GOLDEN), tmp_path / "golden", PROMPT, LONG)
    made = Packed()
    config = DumpConfig(str(tmp_path / "mine"), token_range=range(99), follow=gold)
    with torch.no_grad(), register_hook(made, config):
        made(torch.cat([PROMPT[0], LONG[0]]), torch.cat([torch.arange(4), torch.arange(5)]))
        for each in places:
            made(torch.full((len(each),), 7), torch.tensor(each))
    assert reason in problems(tmp_path / "mine")[0]


def test_no_hook_is_left(golden: Path, tmp_path: Path) -> None:
    made = model(MINE)
    with register_hook(made, DumpConfig(str(tmp_path), token_range=range(99), follow=golden)):
        pass
    assert not made._forward_hooks
