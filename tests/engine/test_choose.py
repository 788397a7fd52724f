"""The engine that a user asks for."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from ait_llm.cli.main import ait
from ait_llm.engine import open_engine
from ait_llm.errors import MissingDependencyError, UsageError


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(ait, ["llm", *map(str, words)])


def test_local_is_left_to_the_use_case() -> None:
    with open_engine("local") as engine:
        assert engine is None


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(UsageError, match="unknown engine 'spark'"), open_engine("spark"):
        pass


def test_a_missing_ray_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'ait-llm\[ray\]'"):  # noqa: SIM117
        with open_engine("ray"):
            pass


def test_a_command_without_ray_ends_with_2_and_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    np.save(tmp_path / "a.npy", np.ones(3))
    source, output = tmp_path / "a.npy", tmp_path / "out"
    result = run("convert", source, "-o", output, "--to", "pt", "--engine", "ray")
    assert result.exit_code == 2
    assert "--engine ray needs the Python package 'ray'" in result.output


def test_a_node_that_starts_too_late_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")

    def late(**_settings: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", late)
    with pytest.raises(UsageError, match="Ray cannot be started here: The current node timed out"):  # noqa: SIM117
        with open_engine("ray"):
            pass


def test_a_client_address_is_refused_with_what_to_give_instead() -> None:
    pytest.importorskip("ray")
    with pytest.raises(UsageError, match=r"give auto or HOST:PORT"):  # noqa: SIM117
        with open_engine("ray", "ray://head:10001"):
            pass


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("nonsense", "is neither auto nor HOST:PORT"),
        ("localhost:99999", "is neither auto nor HOST:PORT"),
        ("127.0.0.1:1", "nothing answers there"),
    ],
)
def test_an_address_without_a_cluster_is_told_at_once(address: str, reason: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(UsageError, match=reason), open_engine("ray", address):
        pass


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "-gp", "g", "-mp", "m"),
        ("opcheck", "-i", "d"),
        ("errcheck", "--dump", "d"),
        ("convert", "d", "-o", "o", "--to", "npy"),
    ],
    ids=lambda words: words[0],
)
def test_an_address_without_the_engine_is_wrong_use(words: tuple[str, ...]) -> None:
    result = run(*words, "--address", "auto")
    assert result.exit_code == 2
    assert "--address is for --engine ray" in result.output


def test_a_program_cannot_run_elsewhere() -> None:
    result = run("errcheck", "--exec", "true", "--engine", "ray")
    assert result.exit_code == 2
    assert "--engine ray is for --dump" in result.output
