"""The file that is complete at every moment."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm.dump.api.growing_json import GrowingJson, encode


@given(
    events=st.lists(
        st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 9), st.text(max_size=8)),
        max_size=12,
    )
)
@settings(max_examples=40, deadline=None)
def test_file_is_valid_after_every_event_and_sorted_in_the_end(
    tmp_path_factory, events: list[tuple[str, bool, int, str]]
) -> None:
    path = tmp_path_factory.mktemp("json") / "dump.json"
    file = GrowingJson(path, {"task": "tensor"})
    sealed: dict[str, tuple[int, str]] = {}
    pending: dict[str, str] = {}
    for name, complete, order, text in events:
        if complete:
            file.end(name, encode(text), order)
            pending.pop(name, None)
            sealed.pop(name, None)
            sealed[name] = (order, text)
        else:
            file.begin(name, encode(text))
            pending[name] = text
        expected = {key: value for key, (_, value) in sealed.items()} | pending
        assert json.loads(path.read_text())["data"] == expected
    for name in pending:
        file.end(name, None, 0)
    file.finish()

    document = json.loads(path.read_text())
    assert document["task"] == "tensor"
    assert document["data"] == {key: value for key, (_, value) in sealed.items()}
    orders = [sealed[key][0] for key in document["data"]]
    assert orders == sorted(orders)


def test_file_replaces_a_link_and_is_not_for_everybody(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("keep")
    path = tmp_path / "dump.json"
    path.symlink_to(target)
    GrowingJson(path).finish()

    assert target.read_text() == "keep"
    assert json.loads(path.read_text()) == {}
    assert stat.S_IMODE(path.stat().st_mode) & 0o027 == 0


def test_bare_numbers_that_json_has_no_words_for_are_read_back(tmp_path: Path) -> None:
    file = GrowingJson(tmp_path / "x.json")
    file.end("a", encode({"Max": float("inf"), "Min": float("-inf")}), 0)
    file.finish()

    assert json.loads((tmp_path / "x.json").read_text())["a"] == {
        "Max": float("inf"),
        "Min": float("-inf"),
    }
