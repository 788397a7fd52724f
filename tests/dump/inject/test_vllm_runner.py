"""A program with vLLM's runner, captured without knowing of it: steps, schedule, selection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from engine_program import PROMPTS, capture_server, golden_model, injected, server

from ait_llm.core import StepRange
from ait_llm.dump.inject import vllm
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.pytorch.engine_selection import RequestSelection
from ait_llm.dumps import open_dump
from ait_llm.program.passes import passes_of
from ait_llm.program.schedule import Stretch, engine_schedules, schedule_of

ALL = StepRange(((0, 1 << 40),))


@pytest.fixture(scope="module")
def model() -> Any:
    with torch.no_grad():
        return golden_model()


@pytest.fixture(scope="module")
def answers(model: Any) -> dict[str, list[int]]:
    """Without a capture."""
    with torch.no_grad(), server(model) as made:
        return made.serve()


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of everything."""
    place = tmp_path_factory.mktemp("server")
    with torch.no_grad():
        found = capture_server(place, model)
    (place / "answers.json").write_text(json.dumps(found))
    return place


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    [path] = (folder / "ait_dump/ledger").glob("*.jsonl")
    every = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in every if line["kind"] == kind]


def steps(folder: Path) -> set[int]:
    return {operation.step for operation in open_dump(folder).operations()}


def test_answers_are_the_same_with_the_capture(folder: Path, answers: dict[str, Any]) -> None:
    assert json.loads((folder / "answers.json").read_text()) == answers


def test_warm_up_passes_are_no_steps(folder: Path) -> None:
    assert steps(folder) == {0, 1, 2, 3}
    [embedding, *_] = [
        operation
        for operation in open_dump(folder).operations(step=0)
        if operation.name == "root.model.embed_tokens"
    ]
    assert embedding.inputs[0].nd().tolist()[:8] == [9, 17, 63, 5, 88, 41, 9, 3]


def test_logits_belong_to_the_step_that_made_their_hidden_states(folder: Path) -> None:
    for step in range(4):
        found = {each.name: each for each in open_dump(folder).operations(step=step)}
        hidden = found["root"].outputs[0].nd()
        read = found["root.logits_processor"].inputs[0].nd()
        assert all(any((row == other).all() for other in hidden) for row in read)


def test_every_row_is_a_token_of_a_request_in_the_order_of_the_batch(folder: Path) -> None:
    rows = [line["rows"] for line in lines(folder, "schedule")]
    assert rows[0] == [
        {"request": "b-2", "first": 0, "count": 1, "tokens": [9]},
        {"request": "a-1", "first": 0, "count": 7, "tokens": PROMPTS["a-1"]},
    ]
    assert rows[1][0] == {
        "request": "d-4", "first": 4, "count": 1, "cached": 4, "tokens": [7]
    }  # fmt: skip
    assert [(row["request"], row["first"]) for row in rows[2]] == [
        ("d-4", 5), ("c-3", 4), ("b-2", 3), ("a-1", 8)
    ]  # fmt: skip


def test_tokens_that_a_pass_chose_are_known(folder: Path, answers: dict[str, Any]) -> None:
    found: dict[str, list[int]] = {}
    for line in lines(folder, "sampled"):
        for name, tokens in line["tokens"].items():
            found.setdefault(name, []).extend(tokens)
    assert found == answers
    assert "b-2" not in lines(folder, "sampled")[0]["tokens"]  # its prompt goes on


def test_a_pass_knows_its_schedule(folder: Path, answers: dict[str, Any]) -> None:
    dump = open_dump(folder)
    [process] = dump.processes
    second = schedule_of(passes_of(dump, process)[1])
    assert second is not None
    assert second.count == 8
    assert second.newest == (0, 4, 6, 7)
    assert [*second.places()][:3] == [(0, "d-4", 4), (1, "c-3", 0), (2, "c-3", 1)]
    assert second.sampled["c-3"] == (answers["c-3"][0],)


def test_requests_are_read_with_all_their_tokens(folder: Path, answers: dict[str, Any]) -> None:
    [process] = open_dump(folder).processes
    assert process.ledger is not None
    found = engine_schedules(process.ledger.engine).requests
    assert {name: list(each.tokens) for name, each in found.items()} == {
        name: PROMPTS[name] + answers[name] for name in PROMPTS
    }
    assert (found["d-4"].cached, found["d-4"].prompt, found["d-4"].number) == (4, 5, 3)


def test_rows_behind_the_same_tokens_have_the_same_key(folder: Path) -> None:
    [process] = open_dump(folder).processes
    assert process.ledger is not None
    stretches: list[Stretch] = []
    for each in engine_schedules(process.ledger.engine).passes.values():
        stretches += each.stretches
    [first] = [each for each in stretches if each.request == "a-1" and each.first == 0]
    [last] = [each for each in stretches if each.request == "d-4" and each.first == 4]
    assert len(first.keys) == 7
    assert last.keys[0] not in first.keys  # the fifth token is another one


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"steps": StepRange(((0, 0),))}, {0, 1}),  # passes that read some of a prompt
        ({"steps": StepRange(((2, 2),))}, {2, 3}),
        ({"requests": ("a-1",)}, {0, 1, 2}),
        ({"requests": ("3",)}, {1, 2, 3}),
        ({"requests": ("a",), "steps": StepRange(((1, 1),))}, {1}),
        ({"passes": StepRange(((3, 9),))}, {3}),
    ],
)
def test_passes_are_chosen_by_token_request_and_number(
    tmp_path: Path, model: Any, settings: dict[str, Any], expected: set[int]
) -> None:
    with torch.no_grad():
        capture_server(tmp_path, model, **settings)
    assert steps(tmp_path) == expected
    assert len(lines(tmp_path, "schedule")) == 4  # what was not captured is still told


def test_a_cancelled_request_ends_and_the_others_go_on(
    tmp_path: Path, model: Any, answers: dict[str, list[int]]
) -> None:
    with torch.no_grad(), injected(TorchSettings(tmp_path, steps=ALL)), server(model) as made:
        found = made.serve(cancel="c-3")
    assert found == {**answers, "c-3": answers["c-3"][:1]}
    told = [row["request"] for line in lines(tmp_path, "schedule")[2:] for row in line["rows"]]
    assert "c-3" not in told


def test_a_version_whose_schedule_cannot_be_read_is_told_and_goes_on(
    tmp_path: Path,
    model: Any,
    answers: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(vllm, "_planned", lambda *_: 1 / 0)
    with torch.no_grad(), injected(TorchSettings(tmp_path, steps=ALL)), server(model) as made:
        assert made.serve() == answers
    assert "what vLLM schedules cannot be read: ZeroDivisionError" in caplog.text


def test_a_model_that_is_compiled_while_nothing_is_captured_has_its_hooks_then() -> None:
    entered: list[str] = []

    class Runner:
        def __init__(self, mode: str) -> None:
            config = SimpleNamespace(mode=SimpleNamespace(name=mode), cudagraph_mode=None)
            self.vllm_config = SimpleNamespace(compilation_config=config)

        def _dummy_run(self) -> list[str]:
            return list(entered)

    @contextmanager
    def compiled() -> Iterator[None]:
        entered.append("hooks")
        yield
        entered.clear()

    runners = vllm.VllmRunners(
        RequestSelection(ALL, (), None), lambda *_: None, lambda: False, compiled
    )
    runners._replace(Runner, "_dummy_run", runners._dry)
    assert Runner("DYNAMO_TRACE_ONCE")._dummy_run() == ["hooks"]
    assert Runner("NONE")._dummy_run() == []
    assert entered == []
