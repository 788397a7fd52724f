"""Engines that capture through msprobe, call for call, around a small model.

``python msprobe_engines.py KIND CONFIG`` with the kinds of :data:`KINDS`. What stands here in
``_init_debugger`` and around the passes is what vllm-ascend's ``NPUModelRunner`` and SGLang's
``ModelRunner`` do.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from recorded_graph import RecordedGraph
from torch import nn

REQUESTS = ({"a": 3, "b": 2}, {"a": 1, "b": 1}, {"b": 1})


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.silu(self.up(x)))


class Net(nn.Module):
    """Packed tokens in, logits of all of them out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(50, 16)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(16, 50, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class VllmAscend:
    """``vllm_ascend.worker.model_runner_v1.NPUModelRunner``.

    Args:
        dump_config_path: of ``--additional-config``.
        graphs: a cudagraph mode other than NONE.
        replayed: the graphs are recorded: in a pass no Python runs.
    """

    def __init__(self, dump_config_path: str, *, graphs: bool = False, replayed: bool = False):
        self.model: Any = Net()
        self.replayed = replayed
        self._debugger_started = False
        if not graphs:
            from msprobe.pytorch import PrecisionDebugger  # type: ignore[import-not-found]

            self.debugger = PrecisionDebugger(dump_config_path)
        else:
            try:
                from msprobe.pytorch import AclGraphDumper
            except Exception as exc:
                raise RuntimeError("Failed to import AclGraphDumper from msprobe.") from exc
            self.debugger = AclGraphDumper(dump_config_path)
            self._start_dump_data()
            self._dummy_run()

    def _start_dump_data(self, **kwargs: Any) -> None:
        if self.debugger is None or self._debugger_started:
            return
        self.debugger.start(self.model, **kwargs)
        self._debugger_started = True

    def _finalize_dump_data(self, **kwargs: Any) -> None:
        if self.debugger is None or not self._debugger_started:
            return
        if hasattr(self.debugger, "stop"):
            self.debugger.stop()
            self._debugger_started = False
        self.debugger.step(**kwargs)

    def _dummy_run(self) -> None:
        self.model(torch.zeros(8, dtype=torch.int64))
        self._finalize_dump_data(dump=False)

    def execute_model(self, scheduled: dict[str, int]) -> torch.Tensor:
        eager = {} if self._debugger_started else {"scheduled_tokens": scheduled}
        self._start_dump_data(**eager)
        ids = torch.arange(sum(scheduled.values()))
        run = self.model.forward_of_a_graph if self.replayed else self.model
        logits = run(ids)
        self._finalize_dump_data()
        return logits

    def record(self) -> None:
        """``capture_model``: a graph of each size, which passes replay from now on."""
        self.replayed = True
        graphs = {}
        for size in sorted({sum(each.values()) for each in REQUESTS}, reverse=True):
            graph, ids = RecordedGraph(), torch.zeros(size, dtype=torch.int64)
            graph.capture_begin()
            logits = self.model(ids)
            graph.capture_end()
            graphs[size] = graph, ids, logits
        self._finalize_dump_data(dump=False)

        def run(tokens: torch.Tensor) -> torch.Tensor:
            graph, ids, logits = graphs[len(tokens)]
            ids.copy_(tokens)
            graph.replay()
            return logits.clone()

        self.model.forward_of_a_graph = run

    def compile(self) -> None:
        """The model is compiled as a whole."""
        self.replayed = True
        compiled = torch.compile(self.model, backend="aot_eager")
        self.model.forward_of_a_graph = lambda ids: compiled(ids)

    def replay(self) -> None:
        """From now on passes run without the model's Python."""
        self.replayed = True
        self.model.forward_of_a_graph = lambda ids: torch.zeros(len(ids), 50)


class SGLang:
    """``sglang.srt.model_executor.model_runner.ModelRunner``."""

    def __init__(self, msprobe_dump_config: str) -> None:
        self.model = Net()
        self.msprobe_debugger = None
        try:
            from msprobe.pytorch import PrecisionDebugger, seed_all
        except ImportError:
            return  # with a warning
        seed_all(mode=True)
        self.msprobe_debugger = PrecisionDebugger(config_path=msprobe_dump_config)

    def forward(self, count: int) -> torch.Tensor:
        if self.msprobe_debugger is not None:
            self.msprobe_debugger.start(model=self.model, rank_id=None)
        output = self.model(torch.arange(count))
        if self.msprobe_debugger is not None:
            self.msprobe_debugger.stop()
            self.msprobe_debugger.step()
        return output


def run(kind: str, config: str) -> None:
    """Serve the requests once."""
    with torch.no_grad():
        if kind == "sglang":
            server = SGLang(config)
            for scheduled in REQUESTS:
                server.forward(sum(scheduled.values()))
            return
        runner = VllmAscend(config, graphs=kind != "vllm-ascend")
        if kind == "vllm-ascend-recorded":
            runner.record()
        if kind == "vllm-ascend-compiled":
            runner.compile()
        for number, scheduled in enumerate(REQUESTS):
            if kind == "vllm-ascend-replayed" and number == 1:
                runner.replay()
            runner.execute_model(scheduled)


KINDS = (
    "vllm-ascend",
    "vllm-ascend-graphs",
    "vllm-ascend-recorded",
    "vllm-ascend-compiled",
    "vllm-ascend-replayed",
    "sglang",
)

if __name__ == "__main__":
    run(*sys.argv[1:])
