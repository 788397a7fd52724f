"""What a capture of a PyTorch program brought back, and every reason why it is not complete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ait_llm.core import StepRange
from ait_llm.dump.inject.channel import Report
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.torch_ledger import TorchProcess

if TYPE_CHECKING:
    from ait_llm.dumps.following import Followed

_NAMED = 3

Verdict = Literal["same", "changed", "undecided"]


@dataclass(frozen=True, slots=True)
class Observation:
    """Result of ``--verify-observer``.

    Attributes:
        verdict: whether the outputs of the outermost models are the same with and without the
            capture; ``undecided`` if they differ between two runs without it too.
        outputs: how many outputs were compared.
        detail: a sentence with the reason.
    """

    verdict: Verdict
    outputs: int
    detail: str


@dataclass(frozen=True, slots=True)
class TorchSummary:
    """Result of one capture.

    Attributes:
        exit_code: how the program ended: its code, or 128 plus its signal.
        dump_dir: the directory written into.
        processes: those that captured something, by device and process id.
        problems: one sentence for each thing that was asked for and is not there.
        notes: sentences worth knowing that do not make the capture incomplete.
        observation: whether the capture changed what the models return, if that was asked for.
    """

    exit_code: int
    dump_dir: Path
    processes: tuple[TorchProcess, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    observation: Observation | None = None

    @property
    def complete(self) -> bool:
        """True if everything that was asked for lies on disk."""
        return not self.problems

    @property
    def steps(self) -> tuple[int, ...]:
        """Tokens of which any process recorded something."""
        return tuple(sorted({step for process in self.processes for step in process.steps}))

    def total(self, name: str) -> int:
        """Sum of one numeric field over the processes, such as ``"tensors"``."""
        return sum(getattr(process, name) for process in self.processes)

    def as_dict(self) -> dict[str, Any]:
        """The summary for machines: JSON types only."""
        return {
            "exit_code": self.exit_code,
            "complete": self.complete,
            "dump_dir": str(self.dump_dir),
            "devices": sorted({process.device for process in self.processes}),
            "steps": list(self.steps),
            **{
                name: self.total(name)
                for name in (
                    "modules",
                    "operators",
                    "tensors",
                    "bytes",
                    "weights",
                    "lost_tensors",
                    "not_captured",
                )
            },
            "sealed": all(process.sealed for process in self.processes),
            "processes": [process.as_dict() for process in self.processes],
            "observer": None if self.observation is None else asdict(self.observation),
            "problems": list(self.problems),
            "notes": list(self.notes),
        }


def torch_losses(processes: Iterable[TorchProcess]) -> list[str]:
    """A sentence for each process that lost something or did not finish its ledger."""
    sentences = []
    for process in processes:
        name = f"process {process.pid} on {process.device}"
        if process.damaged_lines and process.sealed:
            sentences.append(f"{name}: {process.damaged_lines} lines of {process.path} are damaged")
        if process.lost_lines:
            sentences.append(f"{name}: {process.lost_lines} lines of its ledger were not written")
        for state, verb in (("failed", "failed"), ("dropped", "could not be saved at all")):
            if process.states[state]:
                reasons = "; ".join(reason for reason, _ in process.reasons.most_common(2))
                sentences.append(
                    f"{name}: {process.states[state]} calls {verb}, {process.lost_tensors} tensors "
                    f"lost ({reasons})"
                )
        if process.unwritten:
            sentences.append(
                f"{name}: {len(process.unwritten)} of the compiled graphs could not be written "
                f"({process.unwritten[0]})"
            )
        if process.unseen:
            sentences.append(
                f"{name}: {process.unseen} modules ran inside torch.compile, where hooks do "
                f"not see them (first: {process.first_unseen}); to see them, dump with "
                "TORCHDYNAMO_DISABLE=1 in the environment"
            )
        sentences += [f"{name}: {text}" for text in process.lacks]
        took = _followed(process)
        if took is not None:
            sentences += [f"{name} {reason}" for reason in took.refused]
        if process.running:
            sentences.append(f"{name} is still running, so its capture is not finished")
        elif not process.sealed:
            last = process.last_call
            cause = "killed, or the disk was full" if process.states["failed"] else "killed?"
            sentences.append(
                f"{name} ended without sealing its ledger ({cause}); "
                + (f"the last call it recorded is {last}" if last else "it recorded nothing")
            )
    return sentences


def torch_notes(processes: Iterable[TorchProcess]) -> list[str]:
    """A sentence for each process that saw values or calls which are not there to be saved."""
    sentences = []
    for process in processes:
        name = f"process {process.pid} on {process.device}"
        took = _followed(process)
        if took is not None and took.done is not None:
            sentences.append(f"{name} {took.done}")
        if process.budget:
            sentences.append(f"{name}: {process.budget}")
        sentences += [f"{name}: {text}" for text in process.remarks[:_NAMED]]
        if len(process.remarks) > _NAMED:
            sentences.append(f"{name}: its ledger has {len(process.remarks) - _NAMED} more remarks")
        if process.not_captured:
            sentences.append(
                f"{name}: {process.not_captured} values are no tensors that can be saved and are "
                f"named in its ledger, such as {'; '.join(process.examples)}"
            )
        if process.outside:
            sentences.append(
                f"{name}: {process.outside} calls of modules belong to no call of their model "
                "(recomputation in a backward pass, for one) and are not recorded"
            )
    return sentences


def _followed(process: TorchProcess) -> Followed | None:
    if not process.follow:
        return None
    from ait_llm.dumps.following import followed  # what reads dumps is seldom needed

    return followed(process.follow)


def nothing_captured(
    settings: TorchSettings,
    exit_code: int,
    reports: Sequence[Report],
    processes: Sequence[TorchProcess],
) -> list[str]:
    """Why nothing at all, or nothing of what was selected, was recorded; empty if something was."""
    sentences = [
        f"process {entry.process} could not be captured: {entry.facts.get('reason')}"
        for entry in reports
        if entry.event == "failed"
    ][:_NAMED]
    if any(process.modules or process.operators for process in processes):
        return sentences
    if any(entry.event == "model" for entry in reports):
        return [*sentences, _nothing_selected(settings, reports)]
    if sentences:
        return sentences
    if exit_code:
        return [
            f"the program failed (exit code {exit_code}) before any model was called; make it run "
            "without ait first, then dump again"
        ]
    skipped = {str(entry.facts.get("device")) for entry in reports if entry.event == "skipped"}
    if skipped:
        return [
            f"no model runs on device {settings.device_id}; there are models on "
            f"{', '.join(sorted(skipped))}"
        ]
    if any(entry.event == "torch" for entry in reports):
        compiled = any(entry.facts.get("compiled") for entry in reports if entry.event == "end")
        hint = (
            "its calls run inside a function that torch.compile compiled, where nothing is seen: "
            "dump with TORCHDYNAMO_DISABLE=1 in the environment, or the graphs with --type fx"
            if compiled
            else "it works with functions instead of modules, or only with single modules such as "
            "a Linear; wrap it in a torch.nn.Module"
        )
        return [
            "torch was imported, but no model was called: no torch.nn.Module that has weights and "
            f"other modules inside. Possible reason: {hint}"
        ]
    return [
        "no process that imports torch was seen. Possible reasons: the program does not use torch; "
        "its Python is started with -I, -E or -S, which ignore the environment; it drops "
        "PYTHONPATH on the way (sudo, containers, env -i); or it is not Python"
    ]


def _nothing_selected(settings: TorchSettings, reports: Sequence[Report]) -> str:
    last = max(
        (int(entry.facts.get("last", -1)) for entry in reports if entry.event == "steps"),
        default=-1,
    )
    reached = f"the model's steps went up to {last}" if last >= 0 else "no step was counted"
    reasons = [reached]
    if not settings.steps.is_every:
        reasons = [f"execution never reached the step range -er {settings.steps} ({reached})"]
    if settings.type_prefixes:
        reasons.append(f"no module class starts with {' or '.join(settings.type_prefixes)}")
    if settings.module_names:
        reasons.append(f"no module path matches {' or '.join(settings.module_names)}")
    if settings.layers:
        reasons.append(f"no module is in layers {StepRange(settings.layers)}")
    return "a model was seen, but none of its calls were selected. Possible reasons: " + "; ".join(
        reasons
    )
