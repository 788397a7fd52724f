"""Modules inside graphs of torch.compile, captured by operators in the graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_models import Decoder, calls, ids, ledger_lines, opened, values
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ait_llm import DumpConfig, register_hook

pytestmark = pytest.mark.skipif(not hasattr(torch.library, "custom_op"), reason="needs torch 2.4")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compile_whole(model: nn.Module, backend: str = "aot_eager", **options: Any) -> Any:
    return torch.compile(model, backend=backend, fullgraph=True, **options)


def saved(out: Path) -> dict[str, dict[str, Tensor]]:
    return {name: values(call) for name, call in calls(opened(out)).items()}


def assert_same(mine: dict[str, dict[str, Tensor]], golden: dict[str, dict[str, Tensor]]) -> None:
    assert mine.keys() == golden.keys()
    for name, expected in golden.items():
        assert mine[name].keys() == expected.keys(), name
        for stem, value in expected.items():
            assert torch.equal(mine[name][stem], value), (name, stem)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_leaves_the_capture_of_an_eager_one(backend: str, tmp_path: Path) -> None:
    model = Decoder(2)
    with register_hook(model, DumpConfig(str(tmp_path / "eager"))), torch.no_grad():
        expected = model(ids())
    plain = compile_whole(model, backend)
    with torch.no_grad():
        assert torch.equal(plain(ids()), expected)
    torch._dynamo.reset()
    with register_hook(model, DumpConfig(str(tmp_path / "mine"))), torch.no_grad():
        assert torch.equal(compile_whole(model, backend)(ids()), expected)
    assert_same(saved(tmp_path / "mine"), saved(tmp_path / "eager"))
    assert not [line for line in ledger_lines(tmp_path / "mine") if line["kind"] == "note"]


def test_calls_are_nested_and_ordered_as_in_an_eager_run(tmp_path: Path) -> None:
    model = Decoder(2)
    for name, call in (("eager", model), ("mine", compile_whole(model))):
        with register_hook(model, DumpConfig(str(tmp_path / name))), torch.no_grad():
            call(ids())
    orders = [
        [line["op"] for line in sorted(ledger_lines(tmp_path / name), key=_order) if "op" in line]
        for name in ("eager", "mine")
    ]
    assert orders[0] == orders[1]


def _order(line: dict[str, Any]) -> int:
    return line.get("order", -1)


class Streams(nn.Module):
    """Arguments and results of many kinds, and a change in place."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = _Inner()

    def forward(self, x: Tensor) -> Tensor:
        found, rest = self.inner(x * 2, None, scale=True, more={"a b": (x, x + 1)})
        return found + rest["sum"]


class _Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(
        self, x: Tensor, nothing: None, *, scale: bool, more: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        x.add_(1)  # the input is recorded as it was
        return x * self.weight, {"sum": more["a b"][0] + x}


def test_nested_values_and_constants_have_the_names_of_an_eager_run(tmp_path: Path) -> None:
    model, x = Streams(), torch.arange(3.0)
    for name, call in (("eager", model), ("mine", compile_whole(model))):
        with register_hook(model, DumpConfig(str(tmp_path / name))), torch.no_grad():
            call(x)
    assert_same(saved(tmp_path / "mine"), saved(tmp_path / "eager"))
    notes = [
        {line["op"]: line["values"] for line in ledger_lines(tmp_path / name) if "values" in line}
        for name in ("eager", "mine")
    ]
    assert notes[0]["root.inner"] == notes[1]["root.inner"]


def test_a_graph_of_any_length_records_each_call_at_its_own(tmp_path: Path) -> None:
    model = Decoder(1)
    call = compile_whole(model, dynamic=True)
    with register_hook(model, DumpConfig(str(tmp_path), token_range=[0, 1])), torch.no_grad():
        for length in (4, 7):
            call(ids(length))
    dump = opened(tmp_path)
    shapes = [tuple(values(calls(dump, step)["root.embed"])["output"].shape) for step in (0, 1)]
    assert shapes == [(1, 4, 8), (1, 7, 8)]


def test_a_model_is_compiled_once_more_at_most_when_its_capture_is_over(tmp_path: Path) -> None:
    model = Decoder(1)
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    call = torch.compile(model, backend=counter, fullgraph=True)
    with register_hook(model, DumpConfig(str(tmp_path))), torch.no_grad():
        expected = call(ids())
    before = len(ledger_lines(tmp_path))
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(call(ids()), expected)
    assert counter.frame_count <= 2
    assert len(ledger_lines(tmp_path)) == before


def test_switching_a_capture_compiles_nothing(tmp_path: Path) -> None:
    model = Decoder(1)
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    call = torch.compile(model, backend=counter, fullgraph=True)
    config = DumpConfig(str(tmp_path), token_range=[0, 1, 2, 3])
    with register_hook(model, config) as handle, torch.no_grad():
        capture = handle._capture
        assert capture is not None
        call(ids())
        capture.pause()
        call(ids())
        capture.resume()
        call(ids())
    assert counter.frame_count == 1
    lines = [line for line in ledger_lines(tmp_path) if line.get("op") == "root.head"]
    assert [line["step"] for line in lines] == [0, 1]


def test_statistics_of_a_compiled_model_are_those_of_an_eager_one(tmp_path: Path) -> None:
    model = Decoder(1)
    tables = []
    for name, call in (("eager", model), ("mine", compile_whole(model))):
        config = DumpConfig(str(tmp_path / name), mode="stats")
        with register_hook(model, config), torch.no_grad():
            call(ids())
        [table] = (tmp_path / name).rglob("statistics.csv")
        tables.append(sorted(table.read_text().splitlines()))
    assert tables[0] == tables[1]


def test_what_was_compiled_before_the_capture_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compiled = compile_whole(Decoder(1))
    with torch.no_grad():
        expected = compiled(ids())
        with register_hook(compiled, DumpConfig(str(tmp_path))):
            assert torch.equal(compiled(ids()), expected)
    assert "DYNAMO_DISABLE=1" in caplog.text


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.inside = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inside, self.before(x), use_reentrant=False)


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_modules_where_no_operator_may_be_are_told_and_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, x = Checkpointed(), torch.ones(2, 4, requires_grad=True)
    expected = model(x)
    expected.sum().backward()
    gradient, x.grad = x.grad, None
    with register_hook(model, DumpConfig(str(tmp_path))):
        found = compile_whole(model)(x)
        found.sum().backward()
    assert torch.equal(found, expected)
    assert torch.equal(x.grad, gradient)
    assert set(saved(tmp_path)) == {"0:root", "0:root.before"}
    assert "1 of 3 modules" in caplog.text


def test_an_exported_program_has_no_operator_of_ours(tmp_path: Path) -> None:
    model = Decoder(1)
    with register_hook(model, DumpConfig(str(tmp_path))):
        program = torch.export.export(model, (ids(),), strict=True)
    assert "ait_llm" not in str(program.graph)


class Fused(nn.Module):
    """Activations in sixteen bits, which Inductor makes one kernel of."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Sequential(_Bend()), nn.Sequential(_Bend())

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x)).float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class _Bend(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x * 1.7) * 0.3 + x


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_inductor_computes_the_same_bits_with_and_without_a_capture(tmp_path: Path) -> None:
    # The values between the modules are never rounded in the kernel: a reader more would round.
    model = Fused()
    options = {"cpp_cache_precompile_headers": False}
    torch.manual_seed(0)
    x = torch.randn(16, 64).bfloat16()
    with torch.no_grad(), torch._inductor.config.patch(fx_graph_cache=False):
        expected = compile_whole(model, "inductor", options=options)(x)
        torch._dynamo.reset()
        with register_hook(model, DumpConfig(str(tmp_path))):
            assert torch.equal(compile_whole(model, "inductor", options=options)(x), expected)
        assert not torch.equal(model(x), expected)
        middle = model.first(x)
    found = saved(tmp_path)
    torch.testing.assert_close(found["0:root.second"]["input_0"], middle)
    assert torch.equal(found["0:root"]["output"], expected)
