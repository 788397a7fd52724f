"""Hooks: which calls are recorded, under which path and step, and that nothing is left behind."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_models import (
    Decoder,
    Returns,
    calls,
    capture,
    hook_state,
    ids,
    ledger_lines,
    opened,
    values,
)
from torch import nn

from ait_llm import DumpConfig, register_hook
from ait_llm.errors import UsageError

X = torch.arange(6.0).reshape(2, 3)


class Twice(nn.Module):
    """Calls one member several times, and has it at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = self.first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


class Failing(nn.Module):
    """Raises inside a member and goes on, or not."""

    def __init__(self, error: type[BaseException], *, go_on: bool) -> None:
        super().__init__()
        self.inner = Returns(self._raise)
        self.after = nn.Identity()
        self._error = error
        self._go_on = go_on
        self.fail = True

    def _raise(self, x: torch.Tensor) -> torch.Tensor:
        if self.fail:
            raise self._error("broken")
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            x = self.inner(x)
        except self._error:
            if not self._go_on:
                raise
            # called while an exception is being handled, which is not one of this module
            return self.after(x)
        return self.after(x)


def _states(out: Path) -> dict[str, str]:
    return {
        f"{line['step']}:{line['op']}": line["state"]
        + (f" {line['reason']}" if "reason" in line else "")
        for line in ledger_lines(out)
        if line["kind"] == "op"
    }


def test_each_call_of_a_step_has_its_own_folder(tmp_path: Path) -> None:
    model = Twice()
    found = calls(capture(model, tmp_path, X), 0)
    assert list(found) == ["root", "root.first", "root.first@1"]
    once = model.first(X)
    assert torch.equal(values(found["root.first"])["output"], once)
    assert torch.equal(values(found["root.first@1"])["input_0"], once)
    assert found["root.first@1"].path.name == "root.first@1"


def test_a_module_at_two_places_is_told_in_ledger_and_tree(tmp_path: Path) -> None:
    dump = capture(Twice(), tmp_path, X)
    [note] = [line for line in ledger_lines(tmp_path) if line["kind"] == "note"]
    assert note["places"] == {"root.first": ["root.second"]}
    assert '"root.second"' in dump.models[0].path.read_text()


def test_a_shared_module_is_found_by_its_second_name(tmp_path: Path) -> None:
    found = calls(capture(Twice(), tmp_path, X, module_names="second"), 0)
    assert list(found) == ["root.second", "root.second@1"]


def test_a_module_that_contains_itself_is_captured(tmp_path: Path) -> None:
    model = Decoder(1)
    model.head.owner = model
    found = calls(capture(model, tmp_path, ids()), 0)
    assert "root.head" in found
    assert not any("owner" in name for name in found)


def test_names_that_are_no_file_names_are_escaped(tmp_path: Path) -> None:
    model = nn.Sequential()
    model.add_module("a/b", nn.Identity())
    model.add_module("a@1", nn.Identity())
    found = calls(capture(model, tmp_path, X), 0)
    assert list(found) == ["root", "root.a/b", "root.a@1"]
    assert values(found["root.a/b"])["output"].equal(X)
    assert [found[name].call for name in found] == [0, 0, 0]


def test_an_exception_closes_the_modules_it_passes(tmp_path: Path) -> None:
    model = Failing(ValueError, go_on=False)
    with register_hook(model, DumpConfig(str(tmp_path), token_range=[0, 1])):
        with pytest.raises(ValueError, match="broken"):
            model(X)
        model.fail = False
        model(X)
    states = _states(tmp_path)
    assert states["0:root.inner"] == states["0:root"] == "failed the module raised ValueError"
    assert {states["1:root"], states["1:root.inner"], states["1:root.after"]} == {"saved"}


def test_an_exception_that_the_model_handles_fails_only_its_module(tmp_path: Path) -> None:
    capture(Failing(ValueError, go_on=True), tmp_path, X)
    assert _states(tmp_path) == {
        "0:root.inner": "failed the module raised ValueError",
        "0:root.after": "saved",
        "0:root": "saved",
    }


@pytest.mark.parametrize("operators", [False, True])
def test_an_interrupt_does_not_spoil_the_next_call(tmp_path: Path, operators: bool) -> None:
    model = Failing(KeyboardInterrupt, go_on=False)
    config = DumpConfig(str(tmp_path), token_range=[0, 1], operators=operators)
    with register_hook(model, config):
        with pytest.raises(KeyboardInterrupt):
            model(X)
        model.fail = False
        model(X)
    states = _states(tmp_path)
    assert states["0:root"] == "failed the forward call did not return"
    assert states["1:root"] == "saved"
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


class Recursive(nn.Module):
    """Calls itself, and fails at a depth where a caller handles it."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf = nn.Identity()

    def forward(self, x: torch.Tensor, depth: int = 2) -> torch.Tensor:
        if depth == 0:
            raise ValueError
        try:
            return self(x + 1, depth - 1)
        except ValueError:
            return self.leaf(x * 10)


def test_a_model_that_calls_itself_stays_one_step(tmp_path: Path) -> None:
    found = calls(capture(Recursive(), tmp_path, X), 0)
    assert list(found) == ["root", "root@1", "root@2", "root.leaf"]
    assert torch.equal(values(found["root"])["output"], (X + 1) * 10)
    assert torch.equal(values(found["root@1"])["output"], (X + 1) * 10)
    assert "output" not in values(found["root@2"])
    assert opened(tmp_path).steps == (0,)


def test_threads_have_steps_of_their_own(tmp_path: Path) -> None:
    barrier = threading.Barrier(4)

    def body(x: torch.Tensor) -> torch.Tensor:
        barrier.wait(30)
        return x * 2

    model = nn.Sequential(nn.Identity(), Returns(body), nn.Identity())
    with register_hook(model, DumpConfig(str(tmp_path), token_range=range(4))):
        threads = [
            threading.Thread(target=model, args=(torch.full((3,), float(i)),)) for i in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seen = set()
    for step in range(4):
        found = calls(opened(tmp_path), step)
        assert sorted(found) == ["root", "root.0", "root.1", "root.2"]
        given = values(found["root"])["input_0"]
        assert torch.equal(values(found["root.1"])["output"], given * 2)
        assert torch.equal(values(found["root.2"])["input_0"], given * 2)
        seen.add(given[0].item())
    assert seen == {0.0, 1.0, 2.0, 3.0}


def test_threads_that_the_model_starts_belong_to_its_step(tmp_path: Path) -> None:
    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            threads = [threading.Thread(target=part, args=(x,)) for part in self.parts]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return x

    found = calls(capture(Parallel(), tmp_path, X), 0)
    assert {name for name in found if "parts" in name} == {f"root.parts.{i}" for i in range(3)}


def test_nothing_is_left_after_remove(tmp_path: Path) -> None:
    model = Decoder()
    before = hook_state(model)
    handle = register_hook(model, DumpConfig(str(tmp_path), operators=True))
    assert hook_state(model) != before
    model(ids())
    handle.remove()
    handle.remove()
    assert hook_state(model) == before


def test_remove_within_a_call_ends_the_capture_there(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Identity(), Returns(lambda x: (handle.remove(), x)[1]), nn.Identity())
    handle = register_hook(model, DumpConfig(str(tmp_path)))
    assert torch.equal(model(X), X)
    states = _states(tmp_path)
    assert states["0:root.0"] == "saved"
    assert states["0:root"] == "failed the capture ended during the call"
    assert ledger_lines(tmp_path)[-1]["kind"] == "seal"


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "torch.save"])
def test_a_copy_of_a_captured_model_is_not_captured(tmp_path: Path, way: str) -> None:
    model = Decoder()
    with register_hook(model, DumpConfig(str(tmp_path))):
        if way == "deepcopy":
            other = copy.deepcopy(model)
        elif way == "pickle":
            other = pickle.loads(pickle.dumps(model))
        else:
            file = io.BytesIO()
            torch.save(model, file)
            file.seek(0)
            other = torch.load(file, weights_only=False)
        other(ids())
        assert not [line for line in ledger_lines(tmp_path) if line["kind"] == "op"]
        model(ids())
    assert calls(opened(tmp_path), 0)


def test_a_copied_model_generates_with_its_own_weights(tmp_path: Path) -> None:
    class Generator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(1, 1)

        def generate(self, inputs: torch.Tensor) -> torch.Tensor:
            """Say which model runs."""
            return self.inner.weight

    model = Generator()
    with register_hook(model, DumpConfig(str(tmp_path))):
        other = copy.deepcopy(model)
        assert other.generate(ids()) is other.inner.weight
        assert model.generate(ids()) is model.inner.weight
        assert model.generate.__doc__ == "Say which model runs."
    assert "generate" not in vars(model)


def test_several_models_share_a_dump_until_the_last_is_removed(tmp_path: Path) -> None:
    one, two = Decoder(1), nn.Sequential(nn.Linear(3, 3))
    config = DumpConfig(str(tmp_path))
    first, second = register_hook(one, config), register_hook(two, config)
    one(ids())
    first.remove()
    two(X)
    assert ledger_lines(tmp_path)[-1]["kind"] != "seal"
    second.remove()
    found = calls(opened(tmp_path), 0)
    assert {"root.head", "root1", "root1.0"} <= set(found)
    assert found["root1.0"].op_id.parts == (1, 0)
    assert ledger_lines(tmp_path)[-1]["kind"] == "seal"


def test_a_model_registered_twice_is_captured_once(tmp_path: Path) -> None:
    model, config = Decoder(1), DumpConfig(str(tmp_path))
    handle = register_hook(model, config)
    register_hook(model, config)
    model(ids())
    handle.remove()
    assert "root@1" not in calls(opened(tmp_path), 0)
    assert "root1" not in calls(opened(tmp_path), 0)


def test_a_second_capture_replaces_the_first(tmp_path: Path) -> None:
    model = Decoder(2)
    capture(model, tmp_path, ids(), weights=True)
    found = calls(capture(model, tmp_path, ids(3), module_names="head"), 0)
    assert list(found) == ["root.head"]
    assert not list(opened(tmp_path).weights())


def test_two_captures_with_other_settings_cannot_share_a_folder(tmp_path: Path) -> None:
    with (
        register_hook(Decoder(1), DumpConfig(str(tmp_path))),
        pytest.raises(UsageError, match="other settings"),
    ):
        register_hook(Decoder(1), DumpConfig(str(tmp_path), tensor_part=0))


def test_modules_called_without_the_model_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = Decoder(1)
    with register_hook(model, DumpConfig(str(tmp_path))):
        model.head(torch.zeros(1, 8))
    [note] = [line for line in ledger_lines(tmp_path) if line["kind"] == "note"]
    assert note["modules"] == {"root.head": 1}
    assert "register the hook on the module that is called" in caplog.text


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tracing_does_not_see_the_capture(tmp_path: Path) -> None:
    model = Decoder(1).eval()
    plain = str(torch.jit.trace(model, ids()).inlined_graph).count("\n")
    with register_hook(model, DumpConfig(str(tmp_path))):
        hooked = str(torch.jit.trace(model, ids()).inlined_graph).count("\n")
    assert hooked == plain


def test_operators_are_below_the_module_that_called_them(tmp_path: Path) -> None:
    model = Decoder(1)
    dump = capture(model, tmp_path, ids(), operators=True)
    found = calls(dump, 0)
    below = {name: call for name, call in found.items() if name.startswith("root.head.aten")}
    assert {call.op_id.parts[:-1] for call in below.values()} == {found["root.head"].op_id.parts}
    product = values(below["root.head.aten.mm.default"])["output"]
    assert torch.equal(values(found["root.head"])["output"], product.reshape(1, 4, 16))
    weight = dict(below["root.head.aten.mm.default"].weights["input_1"])
    assert isinstance(weight.pop("storage"), int)
    assert weight == {
        "version": 0,
        "name": "root.head.weight",
        "dtype": "float32",
        "shape": [8, 16],
        "stride": [1, 8],
        "offset": 0,
    }


def test_operators_alone_are_named_by_their_modules_which_are_left_out(tmp_path: Path) -> None:
    both = calls(capture(Decoder(1), tmp_path / "both", ids(), operators=True), 0)
    alone = calls(capture(Decoder(1), tmp_path / "alone", ids(), operators=True, modules=False), 0)
    assert set(alone) == {name for name in both if ".aten." in name}
    assert alone


def test_an_operator_in_place_is_seen_before_and_after(tmp_path: Path) -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x.add_(1)
        x.data.mul_(3)
        return x

    found = calls(capture(Returns(body), tmp_path, X, operators=True), 0)
    add = found["root.aten.add_.Tensor"]
    assert torch.equal(values(add)["input_0"], X)
    assert torch.equal(values(add)["output"], X + 1)
    assert torch.equal(values(found["root.aten.mul_.Tensor"])["output"], (X + 1) * 3)
    assert torch.equal(values(found["root"])["output"], (X + 1) * 3)


def test_the_encoder_that_generate_runs_first_belongs_to_the_prefill(tmp_path: Path) -> None:
    class EncoderDecoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Linear(3, 3)
            self.decoder = nn.Linear(3, 3)

        def forward(self, decoder_input_ids: torch.Tensor, past: Any = None) -> torch.Tensor:
            return self.decoder(decoder_input_ids)

        def generate(self, x: torch.Tensor) -> None:
            y = self.encoder(x)
            for length in range(3):
                self(y, past=[[torch.zeros(1, 1, length, 2)]] if length else None)

    model = EncoderDecoder()
    config = DumpConfig(str(tmp_path), token_range=range(9), operators=True)
    with register_hook(model, config), torch.no_grad():
        model.generate(X)
        model.generate(X)
    for step in range(6):
        found = calls(opened(tmp_path), step)
        assert "root.decoder" in found
        assert ("root.encoder" in found) == (step in (0, 3))
        assert any(name.startswith("root.encoder.aten") for name in found) == (step in (0, 3))
    assert opened(tmp_path).steps == tuple(range(6))


def test_weights_are_saved_once_each(tmp_path: Path) -> None:
    model = Decoder(1)
    model.tied = nn.Linear(8, 16, bias=False)
    model.tied.weight = model.head.weight
    model.register_buffer("shift", torch.ones(2))
    dump = capture(model, tmp_path, ids(), weights=True)
    saved = {tensor.stem: tensor for tensor in dump.weights()}
    assert set(saved) == {f"root.{name}" for name in [*dict(model.named_parameters()), "shift"]}
    assert "root.tied.weight" not in saved
    assert torch.equal(saved["root.head.weight"].torch(), model.head.weight)
    [line] = [line for line in ledger_lines(tmp_path) if line.get("type") == "weights"]
    assert (line["tensors"], line["path"].split("/", 1)[1]) == (len(saved), "weights")


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"module_list": [nn.LayerNorm]}, {f"root.layers.{i}.0" for i in range(3)}),
        ({"module_names": ["layers.*.1"]}, {f"root.layers.{i}.1" for i in range(3)}),
        ({"module_names": "re:head$|^root$"}, {"root", "root.head"}),
        ({"layers": [1]}, {"root.layers.1", "root.layers.1.0", "root.layers.1.1"}),
        ({"layers": [(0, 1)], "module_list": [nn.Linear]}, {"root.layers.0.1", "root.layers.1.1"}),
    ],
)
def test_selection(tmp_path: Path, config: dict[str, Any], names: set[str]) -> None:
    assert set(calls(capture(Decoder(), tmp_path, ids(), **config), 0)) == names


@pytest.mark.parametrize(
    ("part", "names"), [(0, ["input_0"]), (1, ["output"]), (2, ["input_0", "output"])]
)
def test_tensor_part(tmp_path: Path, part: int, names: list[str]) -> None:
    found = calls(capture(Decoder(), tmp_path, ids(), tensor_part=part), 0)
    assert sorted(values(found["root.head"])) == names


def test_statistics_without_data(tmp_path: Path) -> None:
    model = Decoder(1)
    dump = capture(model, tmp_path, ids(), mode="stats")
    [output] = calls(dump, 0)["root.head"].outputs
    expected = model(ids()).detach()
    assert not output.has_data
    assert output.shape == tuple(expected.shape)
    assert output.statistics is not None
    assert output.statistics.max == pytest.approx(expected.max().item())
    assert output.statistics.l2norm == pytest.approx(expected.norm().item(), rel=1e-5)
    assert dump.processes[0].problem is None
    assert not list(dump.root.rglob("*.pth"))


def test_statistics_beside_data(tmp_path: Path) -> None:
    [output] = calls(capture(Decoder(1), tmp_path, ids(), mode="both"), 0)["root.head"].outputs
    assert output.has_data
    assert output.statistics is not None
    assert output.statistics.max == output.numpy().max()
