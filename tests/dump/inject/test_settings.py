"""The settings of an injected capture survive the environment, and are checked."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.core import StepRange
from ait_llm.dump.inject.channel import read_reports, report
from ait_llm.dump.inject.root_finder import capture_options
from ait_llm.dump.inject.settings import (
    API_TYPE,
    CHANNEL_VARIABLE,
    COMPILED_TYPES,
    SITE_FOLDER,
    TORCH_TYPES,
    VARIABLE,
    TorchSettings,
    injection_environment,
)
from ait_llm.errors import UsageError

PAIRS = st.lists(
    st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)).map(
        lambda pair: (min(pair), max(pair))
    ),
    min_size=1,
    max_size=3,
).map(tuple)


@given(
    steps=PAIRS,
    layers=PAIRS,
    names=st.lists(st.text(max_size=8).filter(lambda text: not text.startswith("re:"))).map(tuple),
    types=st.sets(st.sampled_from(TORCH_TYPES), min_size=1)
    .filter(lambda types: len(types) == 1 or not types & {API_TYPE, *COMPILED_TYPES})  # alone
    .map(tuple),
    device=st.none() | st.integers(0, 99),
    control=st.none() | st.just(Path("/x/y")),
    flags=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_settings_survive_the_environment(
    steps: tuple[tuple[int, int], ...],
    layers: tuple[tuple[int, int], ...],
    names: tuple[str, ...],
    types: tuple[str, ...],
    device: int | None,
    control: Path | None,
    flags: list[bool],
) -> None:
    settings = TorchSettings(
        output=Path("/a b/c"),
        steps=StepRange(steps),
        layers=layers,
        module_names=names,
        types=types,
        device_id=device,
        control=control,
        description_only=flags[0],
        inputs=flags[1],
        outputs=flags[2],
        weights=flags[3],
        capture=flags[4],
        observe=flags[5],
    )
    assert TorchSettings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"output": "/a"}', '{"nope": 1}'])
def test_damaged_settings_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"{VARIABLE} is not readable"):
        TorchSettings.from_json(text)


def test_a_broken_pattern_is_refused_before_the_program_runs() -> None:
    with pytest.raises(UsageError, match=r"module pattern 're:\('"):
        TorchSettings(output=Path("/o"), module_names=("re:(",))


@pytest.mark.parametrize(
    ("types", "description_only", "data", "statistics", "descriptions", "modules", "operators"),
    [
        (("torch",), False, True, False, False, True, False),
        (("torch",), True, False, False, True, True, False),
        (("torch-stats",), False, False, True, False, True, False),
        (("torch-stats",), True, False, True, False, True, False),
        (("torch-op",), False, True, False, False, False, True),
        (("torch", "torch-op"), False, True, False, False, True, True),
        (("torch-op", "torch-stats"), False, False, True, False, False, True),
        (("torch", "torch-stats"), False, True, True, False, True, False),
    ],
)
def test_types_decide_what_is_written(
    types: tuple[str, ...],
    description_only: bool,
    data: bool,
    statistics: bool,
    descriptions: bool,
    modules: bool,
    operators: bool,
) -> None:
    settings = TorchSettings(
        output=Path("/o"), types=types, description_only=description_only, warmup=2, run="r"
    )
    options = capture_options(settings)
    assert (options.data, options.statistics) == (data, statistics)
    assert options.descriptions == descriptions
    assert (options.modules, options.operators) == (modules, operators)
    assert (options.warmup, options.as_json()["run"]) == (2, "r")


@pytest.mark.parametrize(
    ("before", "after"),
    [({}, str(SITE_FOLDER)), ({"PYTHONPATH": "/x:/y"}, f"{SITE_FOLDER}:/x:/y")],
)
def test_the_environment_of_the_user_is_kept(before: dict[str, str], after: str) -> None:
    settings = TorchSettings(output=Path("/o"))
    made = injection_environment(settings, {"HOME": "/h", **before}, Path("/c"))
    assert made["PYTHONPATH"] == after
    assert made["HOME"] == "/h"
    assert made[CHANNEL_VARIABLE] == "/c"
    assert TorchSettings.from_json(made[VARIABLE]) == settings


def test_reports_without_a_launcher_go_nowhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(CHANNEL_VARIABLE, raising=False)
    report("torch")
    monkeypatch.setenv(CHANNEL_VARIABLE, str(tmp_path / "gone"))
    report("torch")
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_was_cut_off_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CHANNEL_VARIABLE, str(tmp_path))
    report("model", type="Net")
    (path,) = tmp_path.iterdir()
    with path.open("a") as file:
        file.write('{"event": "out')
    (only,) = read_reports(tmp_path)
    assert (only.event, only.facts) == ("model", {"type": "Net"})
