"""Metrics of users: from files, from installed packages, and when they go wrong."""

from importlib.metadata import EntryPoint

import numpy as np
import pytest

from ait_llm.errors import UsageError
from ait_llm.metrics import custom, load_custom, measure_pair

GOOD = """
import torch

def largest(golden, mine):
    assert golden.dtype is torch.float32 and golden.dim() == 1
    return (mine - golden).abs().max().item(), ""

def picky(golden, mine):
    if golden.numel() > 1:
        raise ArithmeticError("too many")
    return 0, ""

def wordy(golden, mine):
    return "none", "no number today"

def numpy_sum(golden: "np.ndarray", mine: "np.ndarray"):
    return float((mine - golden).sum()), ""

def one(golden):
    return 0.0, ""

def bare(golden, mine):
    return 0.5

def broken(golden, mine):
    return golden.nothing, ""
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(GOOD)
    return path


def pair():
    golden = np.arange(6, dtype=np.float16).reshape(2, 3)
    return golden, golden + np.float16(0.5)


def test_function_of_a_file_gets_flat_float32_tensors(script):
    measured = measure_pair(*pair(), custom=[load_custom(f"{script}:largest")])
    assert measured.values["largest"] == 0.5


def test_function_with_numpy_annotations_gets_arrays(script):
    measured = measure_pair(*pair(), custom=[load_custom(f"{script}:numpy_sum")])
    assert measured.values["numpy_sum"] == 3


def test_exception_on_a_pair_becomes_a_reason(script):
    measured = measure_pair(*pair(), custom=[load_custom(f"{script}:picky")])
    assert measured.missing["picky"] == "ArithmeticError: too many"


def test_text_instead_of_a_number_has_its_message_as_reason(script):
    measured = measure_pair(*pair(), custom=[load_custom(f"{script}:wordy")])
    assert measured.missing["wordy"] == "no number today"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("one", "one must take two arguments, golden and mine"),
        ("bare", "bare returned 0.5; return a number or text and a message"),
        ("broken", "fails on two tensors of one element: AttributeError"),
        ("absent", "has no function 'absent'; it defines bare, broken"),
    ],
)
def test_a_function_that_breaks_the_contract_is_one_clear_error(script, function, message):
    with pytest.raises(UsageError, match=message):
        load_custom(f"{script}:{function}")


def test_files_that_cannot_be_used(tmp_path):
    (tmp_path / "bad.py").write_text("import nothing_of_that_name")
    for spec, message in (
        (f"{tmp_path}/absent.py:f", "there is no file"),
        (f"{tmp_path}/bad.py:f", "cannot be loaded: ModuleNotFoundError"),
        ("data.txt:f", "is not of the form path.py:function"),
        ("no_such_metric", "neither path.py:function nor an entry point"),
    ):
        with pytest.raises(UsageError, match=message):
            load_custom(spec)


def test_entry_points_of_installed_packages(monkeypatch):
    point = EntryPoint("spread", f"{__name__}:spread", custom.ENTRY_POINTS)
    monkeypatch.setattr(custom, "entry_points", lambda group: [point])
    monkeypatch.setattr(EntryPoint, "load", lambda self: spread)
    assert custom.entry_point_names() == ["spread"]
    assert load_custom("spread")(*pair()) == (5.0, "")
    with pytest.raises(UsageError, match="installed packages offer spread"):
        load_custom("spraed")


def spread(golden: np.ndarray, mine: np.ndarray) -> tuple[float, str]:
    return float(np.ptp(mine)), ""
