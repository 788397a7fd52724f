"""The settings of an injected capture, as they travel in the environment of a program."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from ait_llm.core import StepRange
from ait_llm.dump.pytorch.ledger import ARGUMENTS_VARIABLE
from ait_llm.errors import UsageError

FX_TYPE, INDUCTOR_TYPE, ONNX_TYPE, GGUF_TYPE = "fx", "inductor", "onnx", "gguf"
API_TYPE = "api"
COMPILED_TYPES = (FX_TYPE, INDUCTOR_TYPE)
"""Those that capture graphs of torch.compile: run node by node, or as Inductor compiles them."""
RUNTIME_TYPES = (ONNX_TYPE, GGUF_TYPE)
"""Those that capture graphs of runtimes without PyTorch: ONNX Runtime, llama.cpp."""
GRAPH_TYPES = (*COMPILED_TYPES, *RUNTIME_TYPES)
"""Those that capture graphs in place of modules."""
TORCH_TYPES = ("torch", "torch-stats", "torch-op", API_TYPE, *COMPILED_TYPES)
"""What ``--type`` calls the captures of PyTorch programs."""

_SHOWN = 200  # characters of names that are none of ours
VARIABLE = "AIT_TORCH_CAPTURE"
COMPILE_ANEW = {"VLLM_DISABLE_COMPILE_CACHE": "1", "VLLM_USE_AOT_COMPILE": "0"}
"""Of programs with vLLM: what is compiled with a capture is not for others, and theirs not for it.

Whatever it is compiled to ahead of time is made for the cache.
"""

CHANNEL_VARIABLE = "AIT_TORCH_CHANNEL"
WATCH_VARIABLE = "AIT_CAPTURE_STARTS_WITH"
"""Module whose import starts the capture; ``torch`` where it is not set."""
_DOES = {
    FX_TYPE: "runs compiled graphs operator by operator",
    INDUCTOR_TYPE: "records the kernels of compiled graphs",
    ONNX_TYPE: "captures the sessions of ONNX Runtime",
    GGUF_TYPE: "captures the contexts of llama.cpp",
}
_PREFILL = StepRange(((0, 0),))
SITE_FOLDER = Path(__file__).resolve().parent / "site"


@dataclass(frozen=True, slots=True)
class TorchSettings:
    """What an injected capture records; free of torch, for the launcher.

    Attributes:
        output: absolute folder in which ``ait_dump`` is made.
        types: members of :data:`TORCH_TYPES`, or one of :data:`RUNTIME_TYPES`.
        steps: generation steps to record; of an engine, tokens of each request.
        requests: ids or numbers of the requests of an engine; empty for all.
        passes: passes of an engine to record, by number; None for all.
        start: capture from the start; False to wait for ``ait llm attach``.
        control: file whose word, ``on`` or ``off``, is followed in place of the channel's.
        budget: bytes that all processes together may write; None for no limit.
        description_only: write names, types and shapes without data.
        inputs, outputs: which sides of a call to record.
        type_prefixes: starts of class names, in any case; empty for every class.
        module_names: globs, or regular expressions after ``re:``; empty for every path.
        layers: closed intervals of layer numbers; empty for every layer.
        device_id: record only on the accelerator with this index.
        own_code: of operators those alone that the code of a selected module calls itself, and of
            weights its own: nothing of its members.
        weights: also save parameters and buffers.
        warmup: generations at the start that do not count.
        queue_bytes: bytes that may wait to be written.
        run: name of the run, in the header of each ledger.
        capture: False to leave the model alone, for the comparison of ``observe``.
        observe: report a digest of everything that an outermost model returns.
        survey: only note what would be saved; see :mod:`ait_llm.plan`.
        follow: dump of the golden run whose tokens ``generate`` takes; None for its own.
        tokens: file that the launcher wrote these tokens to.
        record_arguments: ledgers also hold the command line of their program.
        change: a change that must not change the answer, by its name in
            :mod:`ait_llm.dump.changes.catalogue`; ``plain`` only reports answers.
        patches: plan of values that take the place of the program's own; None for none.

    Raises:
        UsageError: a type or a pattern that cannot be used.
    """

    output: Path
    types: tuple[str, ...] = ("torch",)
    steps: StepRange = _PREFILL
    requests: tuple[str, ...] = ()
    passes: StepRange | None = None
    start: bool = True
    control: Path | None = None
    budget: int | None = None
    description_only: bool = False
    inputs: bool = True
    outputs: bool = True
    type_prefixes: tuple[str, ...] = ()
    module_names: tuple[str, ...] = ()
    layers: tuple[tuple[int, int], ...] = ()
    device_id: int | None = None
    own_code: bool = False
    weights: bool = False
    warmup: int = 0
    queue_bytes: int = 256 << 20
    run: str = ""
    capture: bool = True
    observe: bool = False
    survey: bool = False
    follow: Path | None = None
    tokens: Path | None = None
    record_arguments: bool = False
    change: str = ""
    patches: Path | None = None

    def __post_init__(self) -> None:
        for name in self.types:
            if name not in (*TORCH_TYPES, *RUNTIME_TYPES):
                raise UsageError(f"unknown torch type {name!r}; known: {', '.join(TORCH_TYPES)}")
        if self.is_compiled and len(self.types) > 1:
            graphs = next(name for name in self.types if name in GRAPH_TYPES)
            others = " ".join(name for name in self.types if name != graphs)
            raise UsageError(
                f"--type {graphs} {_DOES[graphs]}, and {others} cannot be captured with it; run "
                "once for each, with an output of its own"
            )
        if self.is_api and not set(self.types) <= {API_TYPE, "torch-stats"}:
            others = " ".join(name for name in self.types if name != API_TYPE)
            raise UsageError(
                f"--type api writes the files of msprobe, and {others} cannot be captured with it; "
                "run once for each, with an output of its own"
            )
        if self.own_code and not (self.operators and self.module_names):
            raise UsageError(
                "--own-code is for operators of chosen modules; give --type torch-op and "
                "--module-name with it"
            )
        for name in self.module_names:
            try:
                re.compile(name.removeprefix("re:") if name.startswith("re:") else "")
            except re.error as error:
                raise UsageError(f"module pattern {name!r}: {error}") from error

    @property
    def is_compiled(self) -> bool:
        """True if graphs are recorded, in place of modules."""
        return any(name in GRAPH_TYPES for name in self.types)

    @property
    def is_api(self) -> bool:
        """True if API calls are recorded, in msprobe's files."""
        return API_TYPE in self.types

    @property
    def is_inductor(self) -> bool:
        """True if they are recorded as Inductor compiles them, kernel by kernel."""
        return INDUCTOR_TYPE in self.types

    @property
    def is_onnx(self) -> bool:
        """True if they are those of sessions of ONNX Runtime."""
        return ONNX_TYPE in self.types

    @property
    def is_gguf(self) -> bool:
        """True if they are those of contexts of llama.cpp."""
        return GGUF_TYPE in self.types

    @property
    def watched(self) -> str:
        """The module whose import starts the capture; empty for ``torch``."""
        return "onnxruntime" if self.is_onnx else "llama_cpp" if self.is_gguf else ""

    @property
    def modules(self) -> bool:
        """True if modules are recorded: always, unless operators alone were asked for."""
        return "torch" in self.types or not self.operators

    @property
    def operators(self) -> bool:
        """True if aten operators are recorded."""
        return "torch-op" in self.types

    @property
    def statistics(self) -> bool:
        """True if statistics are computed."""
        return "torch-stats" in self.types and not self.survey

    @property
    def data(self) -> bool:
        """True if tensors are saved: unless statistics alone, or descriptions, were asked for."""
        return not (self.description_only or self.survey) and (
            "torch" in self.types or not self.statistics
        )

    @property
    def descriptions(self) -> bool:
        """True if rows without statistics stand for the tensors."""
        return self.description_only and not self.statistics

    @property
    def dump_dir(self) -> Path:
        """The folder that a capture makes, or writes its steps into."""
        return self.output if self.is_api else self.output / "ait_dump"

    def to_json(self) -> str:
        """The text of :data:`VARIABLE`."""
        values = asdict(self) | {
            "output": str(self.output),
            **{
                name: None if path is None else str(path)
                for name, path in (
                    ("control", self.control),
                    ("follow", self.follow),
                    ("tokens", self.tokens),
                    ("patches", self.patches),
                )
            },
            "steps": self.steps.intervals,
            "passes": None if self.passes is None else self.passes.intervals,
        }
        return json.dumps(values, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> TorchSettings:
        """Read what :meth:`to_json` wrote.

        Raises:
            UsageError: the text is damaged, or of another version.
        """
        try:
            values = json.loads(text)
            unknown = set(values) - {field.name for field in fields(cls)}
            if unknown:
                raise ValueError(f"unknown settings {', '.join(sorted(unknown))[:_SHOWN]}")
            values["output"] = Path(values["output"])
            for name in ("control", "follow", "tokens", "patches"):
                values[name] = None if values.get(name) is None else Path(values[name])
            for name in ("steps", "passes"):
                if values[name] is not None:
                    intervals = tuple((first, last) for first, last in values[name])
                    values[name] = StepRange(intervals)
            for name in ("types", "type_prefixes", "module_names", "requests"):
                values[name] = tuple(values[name])
            values["layers"] = tuple((first, last) for first, last in values["layers"])
            found = cls(**values)
            found.to_json()  # a value that is nested without end is none of ours
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(
                f"{VARIABLE} is not readable ({error}); start through ait llm dump"
            ) from error
        return found


def injection_environment(
    settings: TorchSettings, environment: Mapping[str, str], channel: Path
) -> dict[str, str]:
    """The environment of a program that captures itself.

    Args:
        settings: what to record.
        environment: the environment that the program would get; its PYTHONPATH is kept.
        channel: folder through which its processes report to the launcher.
    """
    path = environment.get("PYTHONPATH")
    return {
        **environment,
        VARIABLE: settings.to_json(),
        CHANNEL_VARIABLE: str(channel),
        **({WATCH_VARIABLE: settings.watched} if settings.watched else {}),
        **({ARGUMENTS_VARIABLE: "1"} if settings.record_arguments else {}),
        "PYTHONPATH": f"{SITE_FOLDER}:{path}" if path else str(SITE_FOLDER),
    }
