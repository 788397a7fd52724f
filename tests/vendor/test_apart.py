"""Cases run in processes of their own: what they answer, raise and take."""

from __future__ import annotations

import os

import numpy as np
import pytest
from vendor.apart import GIB, TooMuchError, apart
from vendor.generator import NotRunError


def test_what_is_returned_or_raised_comes_back() -> None:
    assert apart(lambda: {"answer": os.getpid()})["answer"] != os.getpid()

    def fails() -> None:
        raise NotRunError("no golden output")

    with pytest.raises(NotRunError, match="no golden output"):
        apart(fails)


def test_more_memory_than_it_may_take_is_said_also_where_something_else_was_made_of_it() -> None:
    def takes() -> int:
        try:
            return int(np.ones(GIB // 4).sum())  # 2 GiB
        except MemoryError as error:
            raise NotRunError("the generator fails") from error

    with pytest.raises(TooMuchError, match="takes more than 1 GiB"):
        apart(takes, GIB)
    assert apart(lambda: int(np.ones(1024).sum()), GIB) == 1024


def test_a_process_that_ends_without_an_answer_is_said() -> None:
    with pytest.raises(TooMuchError, match="ended with 3"):
        apart(lambda: os._exit(3))
