"""Which row of a packed tensor is which place of a padded batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matching_truth import families

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core import Verdict
from ait_llm.match.programs.tokens import Tokens, _by_sequences, find_tokens
from ait_llm.program.one_pass import Pass
from ait_llm.program.program import Program
from ait_llm.program.rows import Rows
from tests.match.programs.checking import matched, matches_of
from tests.match.programs.families import FAMILIES, LENGTHS, Runs, capture

_RIGHT = (*range(7), *range(7, 11))
_LEFT = (*range(7), *range(10, 14))


@pytest.fixture(scope="module", params=["left", "right"])
def padded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Runs]:
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, capture(FAMILIES["qwen2"], folder, padding=request.param)


def _without(run: Pass, *names: str) -> Pass:
    return replace(run, operations=[o for o in run.operations if o.name not in names])


def _places(tokens: Tokens) -> tuple[int, ...]:
    """Place in the padded batch of each packed row."""
    assert [left for left, _ in tokens.pairs] == list(range(tokens.left.count))
    return tuple(right for _, right in tokens.pairs)


def _found(runs: Runs) -> Tokens:
    tokens = find_tokens(Program(runs.atb), Program(runs.torch))
    assert tokens is not None
    return tokens


def test_a_mask_shows_the_real_tokens(padded: tuple[str, Runs]) -> None:
    side, runs = padded
    tokens = _found(runs)
    assert _places(tokens) == (_RIGHT if side == "right" else _LEFT)
    assert (tokens.right.batch, tokens.right.seq) == (2, 7)
    assert tokens.left.count == sum(LENGTHS)
    assert tokens.left.last == (6, 10)
    assert "mask" in tokens.evidence


def test_token_ids_show_them_where_no_mask_was_captured(padded: tuple[str, Runs]) -> None:
    side, runs = padded
    tokens = _found(replace(runs, torch=_without(runs.torch, "root", "root.model")))
    assert _places(tokens) == (_RIGHT if side == "right" else _LEFT)
    assert tokens.evidence == "by token ids"
    assert tokens.certain


def test_positions_and_lengths_make_no_certain_match(padded: tuple[str, Runs]) -> None:
    side, runs = padded
    golden = _without(runs.torch, "root", "root.model", "root.model.embed_tokens")
    kept = [o for o in runs.atb.operations if "WordEmbedding" not in o.name]
    mine = replace(runs.atb, operations=kept)
    tokens = _found(Runs(golden, mine))
    assert _places(tokens) == (_RIGHT if side == "right" else _LEFT)
    assert (tokens.evidence, tokens.certain) == ("by their positions", False)
    for match in matches_of(matched(golden, mine)):
        if match.golden.views:
            assert match.confidence <= 0.6


def test_lengths_alone_are_taken_to_be_padded_on_the_right(padded: tuple[str, Runs]) -> None:
    _, runs = padded
    golden = _without(runs.torch, "root", "root.model", "root.model.embed_tokens")
    kept = [o for o in runs.atb.operations if "Embedding" not in o.name and o.op_id.parts[0] > 1]
    tokens = _found(Runs(golden, replace(runs.atb, operations=kept)))
    assert _places(tokens) == _RIGHT
    assert "lengths" in tokens.evidence
    assert not tokens.certain


def test_nothing_is_known_without_lengths(padded: tuple[str, Runs]) -> None:
    _, runs = padded
    golden = _without(runs.torch, "root", "root.model", "root.model.embed_tokens")
    mine = [o for o in runs.atb.operations if "Attention" not in o.name]
    assert find_tokens(Program(replace(runs.atb, operations=mine)), Program(golden)) is None


def test_one_number_of_all_tokens_answers_none_where_there_is_padding(tmp_path: Path) -> None:
    """Whether all places are real is another question in a padded batch."""
    model = families.make("bert").eval()
    for name, rows in (("alone", [[5, 6, 7, 8]]), ("padded", [[5, 6, 7, 8], [9, 3, 0, 0]])):
        ids = torch.tensor(rows)
        config = DumpConfig(dump_path=tmp_path / name, operators=True)
        with torch.no_grad(), register_hook(model, config):
            model(input_ids=ids, attention_mask=(ids != 0).long())
    found = compare(tmp_path / "alone", tmp_path / "padded")
    assert found.counts[Verdict.FAIL] == 0
    assert found.exit_code() == 0
    paired = {each.golden.op_type for each in found.comparisons if each.golden and each.mine}
    everything = {each.golden.op_type for each in found.comparisons if each.golden}
    of_all = {each for each in everything if "aten.all" in each}
    assert of_all
    assert of_all <= paired  # what it reads is compared


@pytest.mark.parametrize("turned", [False, True])
def test_rows_that_read_the_same_token_by_chance_are_told_apart_by_what_they_read_before(
    turned: bool,
) -> None:
    one, two = Rows(1, 1, 1, (0,)), Rows(2, 1, 2, (0, 1))
    alone = [((0,), np.array([32]))]
    beside = [((0,), np.array([32])), ((1,), np.array([32]))]
    known, others = (9,), (7, 9)
    if turned:
        found = _by_sequences(two, one, beside, alone, keys=(others, known))
        assert found is not None
        assert found.pairs == ((1, 0),)
    else:
        found = _by_sequences(one, two, alone, beside, keys=(known, others))
        assert found is not None
        assert found.pairs == ((0, 1),)
