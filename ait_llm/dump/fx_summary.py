"""Why an FX capture of a program has nothing, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from ait_llm.dump.inject.channel import Report
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.torch_ledger import TorchProcess

_NAMED = 3


def no_graphs(
    settings: TorchSettings,
    exit_code: int,
    reports: Sequence[Report],
    processes: Sequence[TorchProcess],
) -> list[str]:
    """Why no node at all was recorded; empty if something was."""
    sentences = [
        f"process {entry.process} could not be captured: {entry.facts.get('reason')}"
        for entry in reports
        if entry.event == "failed"
    ][:_NAMED]
    if sentences or any(process.operators for process in processes):
        return sentences
    events = {entry.event for entry in reports}
    refused = [str(entry.facts.get("reason")) for entry in reports if entry.event == "refused"]
    if refused:
        return [f"nothing is captured: {refused[0]}"]
    if "graph" in events:
        return [_nothing_selected(settings)]
    if settings.is_onnx:
        return [_no_sessions(exit_code, events)]
    if settings.is_gguf:
        return [_no_contexts(exit_code, events)]
    if exit_code:
        return [
            f"the program failed (exit code {exit_code}) before torch.compile made a graph; make "
            "it run without ait first, then dump again"
        ]
    foreign = [str(entry.facts.get("backend")) for entry in reports if entry.event == "foreign"]
    if foreign:
        return [
            f"torch.compile was called with the backend {foreign[0]}, which makes no kernels of "
            "Inductor; dump with --type fx to see the nodes of its graphs"
        ]
    if "compile" in events:
        return [
            "torch.compile was called, but made no graph. Possible reasons: what it compiled was "
            "never called; TORCHDYNAMO_DISABLE=1 is set; all of it runs in Python because of graph "
            "breaks (TORCH_LOGS=graph_breaks shows them)"
        ]
    if any(entry.facts.get("dynamo") for entry in reports if entry.event == "end"):
        return [
            "the program compiles without torch.compile (torch._dynamo.optimize, or a serving "
            "framework's own backend), which is not captured; give torch.compile the backend "
            "ait_llm.dump.fx_backend.capture(...) in the program"
        ]
    if "torch" in events:
        return [
            f"the program never calls torch.compile, and --type {settings.types[0]} captures the "
            "graphs that it makes; dump with --type torch-op to see every operator of a program in "
            "eager mode"
        ]
    return [
        "no process that imports torch was seen. Possible reasons: the program does not use torch; "
        "its Python is started with -I, -E or -S, which ignore the environment; it drops "
        "PYTHONPATH on the way (sudo, containers, env -i); or it is not Python"
    ]


def _no_sessions(exit_code: int, events: set[str]) -> str:
    if exit_code:
        return (
            f"the program failed (exit code {exit_code}) before a session of ONNX Runtime was "
            "made; make it run without ait first, then dump again"
        )
    if "onnxruntime" in events:
        return (
            "the program imports onnxruntime and makes no InferenceSession in Python; what uses "
            "ONNX Runtime through another interface is not seen"
        )
    return (
        "no process that imports onnxruntime was seen. Possible reasons: the program does not use "
        "it; its Python is started with -I, -E or -S, which ignore the environment; it drops "
        "PYTHONPATH on the way (sudo, containers, env -i); or it is not Python"
    )


def _no_contexts(exit_code: int, events: set[str]) -> str:
    if exit_code:
        return (
            f"the program failed (exit code {exit_code}) before a context of llama.cpp was made; "
            "make it run without ait first, then dump again"
        )
    if "llama_cpp" in events:
        return (
            "the program imports llama_cpp and makes no context in Python; what uses llama.cpp "
            "through its own programs (llama-cli, llama-server) is not seen"
        )
    return (
        "no process that imports llama_cpp was seen. Possible reasons: the program does not use "
        "it; its Python is started with -I, -E or -S, which ignore the environment; it drops "
        "PYTHONPATH on the way (sudo, containers, env -i); or it is not Python"
    )


def _nothing_selected(settings: TorchSettings) -> str:
    reasons = ["no graph ran"]
    if not settings.steps.is_every:
        reasons = [f"no graph ran as often as -er {settings.steps} asks for"]
    if settings.type_prefixes:
        reasons.append(f"no target starts with {' or '.join(settings.type_prefixes)}")
    made = "torch.compile made graphs"
    if settings.is_onnx:
        made = "sessions of ONNX Runtime were made"
    elif settings.is_gguf:
        made = "contexts of llama.cpp were made"
    return f"{made}, but none of their nodes were recorded. Possible reasons: " + "; ".join(reasons)
