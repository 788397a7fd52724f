"""Changes of an engine's requests, on a stand-in that answers each prompt with its own tokens."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ait_llm.dump.changes import engine
from ait_llm.dump.changes.engine import ChangedEngine
from ait_llm.dump.inject.settings import CHANNEL_VARIABLE
from ait_llm.dump.inject.switch import FILE, read_switch

PROMPTS = [{"prompt_token_ids": [5, 6, 7]}, {"prompt_token_ids": [8, 9]}]
GREEDY = SimpleNamespace(temperature=0)


class LLM:
    """Notes what it is made with and asked."""

    def __init__(self, **settings: Any) -> None:
        self.settings, self.asked = settings, []

    def generate(self, prompts: Any, sampling_params: Any = None) -> list[Any]:
        several = prompts if isinstance(prompts, list) else [prompts]
        self.asked.append(several)
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=_ids(p))]) for p in several]


def _ids(prompt: Any) -> list[int]:
    return list(prompt["prompt_token_ids"]) if isinstance(prompt, dict) else [len(prompt)]


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = ModuleType("vllm.entrypoints.llm")
    module.LLM = type("LLM", (LLM,), dict(vars(LLM)))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm.entrypoints.llm", module)
    monkeypatch.setattr(engine, "_SEEN_AFTER", 0)
    return module


def changed(vllm: Any, name: str, **settings: Any) -> tuple[Any, list[tuple[str, Any]]]:
    heard: list[tuple[str, Any]] = []
    ChangedEngine(name, lambda event, **facts: heard.append((event, facts))).install()
    return vllm.LLM(**settings), heard


def answers(outputs: list[Any]) -> list[list[int]]:
    return [each.outputs[0].token_ids for each in outputs]


@pytest.mark.parametrize("name", ["plain", "again", "batch", "place", "after", "prefix", "chunks"])
def test_the_program_gets_the_answers_to_its_own_prompts(vllm: Any, name: str) -> None:
    made, heard = changed(vllm, name)
    assert answers(made.generate(PROMPTS, GREEDY)) == [[5, 6, 7], [8, 9]]
    told = dict(heard)
    assert told["answer"]["tokens"] == [[5, 6, 7], [8, 9]]
    assert ("changed" in told) is (name not in ("plain", "again"))


def test_others_stand_behind_or_in_front(vllm: Any) -> None:
    made, _ = changed(vllm, "batch")
    made.generate(PROMPTS, GREEDY)
    (asked,) = made.asked
    assert asked[:2] == PROMPTS
    assert [_ids(each) for each in asked[2:]] == [[7, 6, 7], [8, 8]]


def test_in_front_stands_one(vllm: Any) -> None:
    made, _ = changed(vllm, "place")
    made.generate(PROMPTS[0], GREEDY)
    assert [_ids(each) for each in made.asked[0]] == [[7, 6, 7], [5, 6, 7]]


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("chunks", "long_prefill_token_threshold"),
        ("prefix", "enable_prefix_caching"),
        ("compile", "enforce_eager"),
        ("ranks", "tensor_parallel_size"),
    ],
)
def test_the_engine_is_made_with_the_change(vllm: Any, name: str, setting: str) -> None:
    made, _ = changed(vllm, name, dtype="float32")
    assert made.settings["dtype"] == "float32"
    assert made.settings[setting]


def test_a_program_that_does_not_compile_is_compiled(vllm: Any) -> None:
    made, _ = changed(vllm, "compile", enforce_eager=True)
    assert made.settings["enforce_eager"] is False


def test_two_ranks_on_the_cpu_share_its_cores(vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2, 5, 6})
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "")
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND")
    changed(vllm, "ranks")
    assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == "0,1|2,5"


@pytest.mark.parametrize("own", [{"tensor_parallel_size": 2}, {"pipeline_parallel_size": 2}])
def test_an_engine_on_several_ranks_stays_as_it_is_and_that_is_told(
    vllm: Any, own: dict[str, int]
) -> None:
    made, heard = changed(vllm, "ranks", **own)
    assert made.settings == own
    assert dict(heard)["unchanged"]["reason"] == "it runs on several ranks already"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TypeError("LLM.__init__() got an unexpected keyword argument"), "unexpected keyword"),
        (ValueError("\n 4 heads cannot be divided by 3.\n more"), "4 heads cannot be divided by 3"),
    ],
)
def test_an_engine_that_does_not_take_the_setting_is_made_as_it_is_and_that_is_told(
    vllm: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    def other(engine: Any, **settings: Any) -> None:
        if "long_prefill_token_threshold" in settings:
            raise error
        engine.settings, engine.asked = settings, []

    monkeypatch.setattr(vllm.LLM, "__init__", other)
    made, heard = changed(vllm, "chunks", dtype="float32")
    assert made.settings == {"dtype": "float32"}
    assert told in dict(heard)["unchanged"]["reason"]
    assert "changed" not in dict(heard)


def test_other_faults_of_making_an_engine_are_its_own(vllm: Any) -> None:
    def refuses(engine: Any, **settings: Any) -> None:
        raise TypeError("dtype must be a str")

    vllm.LLM.__init__ = refuses
    with pytest.raises(TypeError, match="dtype must be a str"):
        changed(vllm, "chunks", dtype=1)


def test_what_comes_first_is_not_captured(
    vllm: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CHANNEL_VARIABLE, str(tmp_path))
    seen: list[bool | None] = []
    ask = vllm.LLM.generate

    def looked(made: Any, *given: Any, **named: Any) -> Any:
        seen.append(read_switch(tmp_path / FILE))
        return ask(made, *given, **named)

    monkeypatch.setattr(vllm.LLM, "generate", looked)
    made, _ = changed(vllm, "after")
    made.generate(PROMPTS, GREEDY)
    assert seen == [False, True]
    assert [_ids(each) for each in made.asked[0]] == [[7, 6, 7], [8, 8]]
    assert made.asked[1] == PROMPTS


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (SimpleNamespace(temperature=0.7), "it samples"),
        (None, "it samples"),
        ([GREEDY, GREEDY], "each request has settings of its own"),
    ],
)
def test_requests_that_draw_or_differ_are_asked_as_they_are(
    vllm: Any, settings: Any, reason: str
) -> None:
    made, heard = changed(vllm, "batch")
    made.generate(PROMPTS, settings)
    assert made.asked == [PROMPTS]
    ((_, facts),) = [each for each in heard if each[0] == "unchanged"]
    assert reason in facts["reason"]


def test_changes_that_an_engine_does_not_have_are_told(vllm: Any) -> None:
    _, heard = changed(vllm, "padding-left")
    assert "changed" not in dict(heard)
    assert "no such setting" in dict(heard)["unchanged"]["reason"]


def test_text_is_asked_in_another_order(vllm: Any) -> None:
    made, _ = changed(vllm, "batch")
    made.generate(["one two three"], GREEDY)
    assert made.asked[0] == ["one two three", "three two three"]
