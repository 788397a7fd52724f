"""``DumpConfig`` and ``register_hook``: capture a PyTorch model with two lines.

    from ait_llm import DumpConfig, register_hook

    register_hook(model, DumpConfig(dump_path="./golden"))

The capture ends with the process, with ``handle.remove()``, or with the ``with`` block that holds
the handle that ``register_hook`` returns.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from torch import nn

from ait_llm.core import StepRange
from ait_llm.dump.pytorch.following import Follower
from ait_llm.dump.pytorch.hooks import model_device
from ait_llm.dump.pytorch.model_capture import ModelCapture
from ait_llm.dump.pytorch.options import CaptureOptions
from ait_llm.dump.pytorch.selection import as_selection
from ait_llm.dump.pytorch.session import CaptureSession, sessions
from ait_llm.dump.pytorch.writer import DEFAULT_QUEUE_BYTES
from ait_llm.errors import UsageError


@dataclass(frozen=True)
class DumpConfig:
    """What ``register_hook`` captures. The first five fields are those of the product manual.

    Attributes:
        dump_path: folder in which ``ait_dump/torch_tensors/{device}_{PID}`` is made.
        token_range: generation steps to capture; 0 is the prefill.
        module_list: classes of the modules to capture; empty for all modules.
        tensor_part: 0 inputs, 1 outputs, 2 both.
        device_id: capture only if the model is on the accelerator with this index.
        module_names: patterns on module paths: a glob such as ``*.mlp.*``, or ``re:`` and a
            regular expression.
        layers: layer numbers and closed intervals of them, such as ``[(0, 3), 31]``.
        mode: ``"tensor"`` saves tensors, ``"stats"`` their statistics, ``"both"`` both.
        operators: also capture every aten operator, below the module that called it.
        own_code: with ``operators`` and ``module_names``, only operators that the code of these
            modules calls itself, and only weights of their own: nothing of their members.
        weights: also save parameters and buffers, each once.
        warmup: generations at the start of the process that do not count.
        queue_bytes: bytes that may wait to be written before the model waits.
        modules: False captures operators alone; needs ``operators``.
        follow: dump of a golden run whose tokens ``generate`` takes in place of its own.

    Raises:
        UsageError: a value of the wrong type or out of range.
    """

    dump_path: str | os.PathLike[str] = "./"
    token_range: Sequence[int] | None = field(default_factory=lambda: [0])
    module_list: Sequence[type[nn.Module]] = field(default_factory=list)
    tensor_part: int = 2
    device_id: int | None = None
    module_names: Sequence[str] | str = ()
    layers: Sequence[int | tuple[int, int]] = ()
    mode: str = "tensor"
    operators: bool = False
    own_code: bool = False
    weights: bool = False
    warmup: int = 0
    queue_bytes: int = DEFAULT_QUEUE_BYTES
    modules: bool = True
    follow: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.dump_path, (str, os.PathLike)):
            raise UsageError(f"dump_path {self.dump_path!r} is not a path")
        steps = self.token_range
        ends = (steps[0], steps[-1]) if isinstance(steps, range) and steps else steps
        if steps is not None and (
            not isinstance(steps, (list, tuple, range)) or not all(map(_is_count, ends or ()))
        ):
            raise UsageError(f"token_range {steps!r} is not a list of steps such as [0, 1]")
        if type(self.tensor_part) is not int or self.tensor_part not in (0, 1, 2):
            raise UsageError(
                f"tensor_part {self.tensor_part!r} is not 0 (inputs), 1 (outputs) or 2 (both)"
            )
        if self.device_id is not None and not _is_count(self.device_id):
            raise UsageError(f"device_id {self.device_id!r} is not a device number or None")
        if self.mode not in ("tensor", "stats", "both"):
            raise UsageError(f"mode {self.mode!r} is not 'tensor', 'stats' or 'both'")
        if not self.modules and not self.operators:
            raise UsageError("modules=False captures operators alone; add operators=True")
        if self.own_code and not (self.operators and self.module_names):
            raise UsageError("own_code=True is for operators=True and module_names=[...]")
        if self.follow is not None and not isinstance(self.follow, (str, os.PathLike)):
            raise UsageError(f"follow {self.follow!r} is not the path of a dump")
        if not _is_count(self.warmup):
            raise UsageError(f"warmup {self.warmup!r} is not a number of generations")
        if not _is_count(self.queue_bytes) or self.queue_bytes == 0:
            raise UsageError(f"queue_bytes {self.queue_bytes!r} is not a positive number of bytes")
        as_selection(self.module_list, self.module_names, self.layers)

    def options(self) -> CaptureOptions:
        """The same settings for the capture itself."""
        return CaptureOptions(
            output=Path(self.dump_path).expanduser().resolve(),
            steps=_intervals(self.token_range or [0]),
            selection=as_selection(self.module_list, self.module_names, self.layers),
            inputs=self.tensor_part in (0, 2),
            outputs=self.tensor_part in (1, 2),
            data=self.mode in ("tensor", "both"),
            statistics=self.mode in ("stats", "both"),
            modules=self.modules,
            operators=self.operators,
            device_id=self.device_id,
            own_code=self.own_code,
            weights=self.weights,
            warmup=self.warmup,
            queue_bytes=self.queue_bytes,
            follow=None if self.follow is None else Path(self.follow).expanduser().resolve(),
        )


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _intervals(steps: Sequence[int]) -> StepRange:
    """The steps as few intervals: a range of a million steps is one."""
    if isinstance(steps, range) and steps.step == 1:
        return StepRange(((steps[0], steps[-1]),))
    found: list[tuple[int, int]] = []
    for step in sorted(set(steps)):
        if found and step == found[-1][1] + 1:
            found[-1] = (found[-1][0], step)
        else:
            found.append((step, step))
    return StepRange(tuple(found))


class HookHandle:
    """A running capture; use it as a context manager or call :meth:`remove`."""

    def __init__(self, session: CaptureSession | None, capture: ModelCapture | None) -> None:
        self._session = session
        self._capture = capture

    @property
    def folder(self) -> Path | None:
        """Where the tensors go; None if the device filter excludes this process."""
        return self._session.folder if self._session is not None else None

    def mark_token(self) -> None:
        """Begin the next generation step by hand, for loops that the counter misreads."""
        if self._capture is not None:
            self._capture.steps.mark()

    def begin_generation(self, prompt_length: int | None = None) -> None:
        """Say that the next forward call is the prefill of a new prompt.

        Args:
            prompt_length: tokens of the prompt, so that a prefill in chunks stays one step.
        """
        if self._capture is not None:
            self._capture.steps.begin_generation(prompt_length)

    def remove(self) -> None:
        """End the capture of this model; harmless when done before.

        No hook is left. With the last model of the process everything is written and the ledger
        is sealed.
        """
        if self._session is not None and self._capture is not None:
            self._session.release(self._capture)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()


def register_hook(
    model: nn.Module,
    config: DumpConfig,
    hook_type: str = "dump_data",
    *,
    hook_name: str | None = None,
    patches: Path | None = None,
) -> HookHandle:
    """Capture what the modules of ``model`` receive and return.

    Args:
        model: the outermost module of the program.
        config: what to capture.
        hook_type: ``dump_data``, the only type there is.
        hook_name: another spelling of ``hook_type``.
        patches: plan of values that take the place of the model's own, as
            :func:`ait_llm.transplant` writes it.

    Returns:
        The running capture.

    Raises:
        UsageError: an argument of the wrong type, an unknown hook type, an output folder that
            cannot be written or that another capture of this process writes to.
        FormatError: the dump to follow holds no tokens.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"register_hook needs a torch.nn.Module, not {type(model).__name__}")
    if not isinstance(config, DumpConfig):
        raise UsageError(f"register_hook needs a DumpConfig, not {type(config).__name__}")
    kind = hook_name if hook_name is not None else hook_type
    if kind != "dump_data":
        raise UsageError(f"unknown hook type {kind!r}; known: dump_data")
    options = replace(config.options(), patches=patches)
    device = model_device(model)
    if (
        options.device_id is not None
        and device.type != "cpu"
        and (device.index or 0) != options.device_id
    ):
        return HookHandle(None, None)
    session = sessions.find(options) or CaptureSession(options, device, _follower(options))
    sessions.add(session)
    return HookHandle(session, session.capture(model))


def _follower(options: CaptureOptions) -> Follower | None:
    if options.follow is None:
        return None
    from ait_llm.dump.golden_run import read_golden_tokens  # what reads dumps is seldom needed

    return Follower(read_golden_tokens(options.follow))
