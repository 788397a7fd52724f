"""``PrecisionDebugger``: the interface of msprobe's capture."""

from __future__ import annotations

import atexit
import functools
import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from ait_llm.dump.api.session import ApiSession, Models
from ait_llm.dump.api.settings import read_settings
from ait_llm.errors import UsageError

_log = logging.getLogger(__name__)
_lock = threading.RLock()


class PrecisionDebugger:
    """Records the calls of a PyTorch program; one per process.

    A second construction gives the first object and ignores its arguments, and all methods can be
    called on the class.

    Args:
        config_path: a ``config.json``.
        task: ``statistics``, ``tensor``, ``overflow_check`` or ``structure``.
        dump_path: the folder to write to.
        level: ``L0`` modules, ``L1`` functions, ``mix`` both, ``debug`` what :meth:`save` gets.
        step: numbers of the steps to record, such as ``[0, "4-6"]``; all by default.

    Raises:
        UsageError: a setting means nothing.

    Example:
        >>> debugger = PrecisionDebugger(dump_path="./dump", level="L1")  # doctest: +SKIP
        >>> debugger.start()  # doctest: +SKIP
        >>> loss = model(batch); loss.backward()  # doctest: +SKIP
        >>> debugger.stop(); debugger.step()  # doctest: +SKIP
    """

    _instance: ClassVar[PrecisionDebugger | None] = None
    _session: ApiSession

    def __new__(
        cls,
        config_path: str | Path | None = None,
        task: str | None = None,
        dump_path: str | Path | None = None,
        level: str | None = None,
        step: Sequence[Any] | None = None,
    ) -> PrecisionDebugger:
        with _lock:
            if cls._instance is None:
                settings = read_settings(
                    config_path,
                    task=task,
                    dump_path=dump_path if dump_path or config_path else "./dump_path",
                    level=level,
                    step=step,
                )
                made = super().__new__(cls)
                made._session = ApiSession(settings)
                if settings.enabled is not None and config_path is not None:
                    made._session.reread = functools.partial(
                        read_settings,
                        Path(config_path).absolute(),
                        task=task,
                        dump_path=dump_path,
                        level=level,
                        step=step,
                    )
                atexit.register(made._session.close)
                PrecisionDebugger._instance = made  # also where the class has been derived from
                return made
            return cls._instance

    @classmethod
    def start(
        cls,
        model: Models = None,
        token_range: Sequence[int] | None = None,
        rank_id: int | None = None,
        scheduled_tokens: Mapping[str, int] | None = None,
    ) -> None:
        """Open a window of capture.

        Args:
            model: a module or several; required for the levels L0 and mix.
            token_range: first and last forward pass of the model to record, counted from here.
            rank_id: of this process, for the name of its folder.
            scheduled_tokens: of an engine's step, how many rows of its packed tensors belong to
                each request, in their order. With the setting ``request_id`` only steps and rows of
                this request are recorded.

        Raises:
            UsageError: there is no debugger yet, no model where one is needed, or the folder
                cannot be written.
        """
        session = cls._current()
        if session.is_finished:
            _log.info("all steps that were asked for are captured")
            return
        session.start(model, rank_id, token_range, scheduled_tokens)

    @classmethod
    def stop(cls) -> None:
        """Close the window; everything recorded is then in the files."""
        cls._current().stop()

    @classmethod
    def step(cls) -> None:
        """End a step: what follows belongs to the next one, and calls count from 0 again."""
        cls._current().step()

    @classmethod
    def forward_backward_dump_end(cls) -> None:
        """The older name of :meth:`stop`."""
        cls._current().stop()

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record one variable and its gradient; only at level ``debug``.

        Args:
            variable: a tensor, text, number, or lists and dictionaries of them.
            name: of its records.
            save_backward: also record the gradients of its tensors.

        Raises:
            UsageError: the variable is of another kind.
        """
        cls._current().save(variable, name, save_backward)

    @classmethod
    def register_custom_api(cls, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Record one more function, from the next :meth:`start` on.

        Args:
            module: where the function is.
            api: its name there.
            api_prefix: of its records; the name of the module by default.

        Raises:
            UsageError: there is no such function.
        """
        if not callable(getattr(module, api, None)):
            raise UsageError(f"register_custom_api: {module!r} has no function {api!r}")
        prefix = str(api_prefix or getattr(module, "__name__", type(module).__name__))
        cls._current().add_function(module, api, prefix)

    @classmethod
    def restore_custom_api(cls, module: Any, api: str) -> None:
        """Record that function no more, from the next :meth:`start` on."""
        cls._current().remove_function(module, api)

    @classmethod
    def set_init_step(cls, step: int) -> None:
        """Set the number of the present step, for a run that goes on from a checkpoint."""
        cls._current().step_number = step

    @classmethod
    def _current(cls) -> ApiSession:
        if cls._instance is None:
            raise UsageError("make a PrecisionDebugger(...) first")
        return cls._instance._session

    @classmethod
    def _reset(cls) -> None:
        """End the capture and forget the object, so that a process can make another one."""
        with _lock:
            instance, PrecisionDebugger._instance = cls._instance, None
            if instance is not None:
                atexit.unregister(instance._session.close)
                instance._session.close()


def save(variable: Any, name: str, save_backward: bool = True) -> None:
    """:meth:`PrecisionDebugger.save` as a function."""
    PrecisionDebugger.save(variable, name, save_backward)


def module_dump(module: nn.Module, dump_name: str) -> None:
    """Record the submodules of one module, until :func:`module_dump_end`.

    Args:
        module: whose submodules are recorded.
        dump_name: what their records begin with.

    Raises:
        UsageError: there is no debugger yet, or this is no module.
    """
    if not isinstance(module, nn.Module) or not isinstance(dump_name, str):
        raise UsageError("module_dump: a torch.nn.Module and a text")
    PrecisionDebugger._current().start_module(module, dump_name)


def module_dump_end() -> None:
    """End what :func:`module_dump` began."""
    PrecisionDebugger._current().end_module()
