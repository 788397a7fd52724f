"""Shapes of the demo models."""

from __future__ import annotations

import pytest

from ait_llm.errors import UsageError
from ait_llm.hostatb.models.config import BertConfig, LlamaConfig


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((64, 2, 3, 1, 128, 256), "does not split into 3 heads"),
        ((12, 2, 4, 2, 128, 256), "does not split into 4 heads of even size"),
        ((64, 2, 4, 3, 128, 256), "cannot share 3 key-value heads"),
        ((64, 0, 4, 2, 128, 256), "number of layers must be positive"),
        ((64, 2, 4, 2, 128, -1), "vocabulary size must be positive"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes: tuple[int, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LlamaConfig(*sizes)


def test_a_bert_hidden_size_must_split_into_heads() -> None:
    with pytest.raises(UsageError, match="does not split into 5 heads"):
        BertConfig(64, 2, 5, 128, 256)
