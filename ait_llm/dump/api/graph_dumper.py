"""``AclGraphDumper`` and ``acl_save``: the interface of msprobe for engines that replay graphs.

What is written is what ``PrecisionDebugger`` writes. Python hooks do not run where a device replays
a recorded graph; what is in the graph reports instead (:mod:`ait_llm.dump.api.graph_calls`). A step
in which the model's parts were not seen all the same is told, in the ledger too.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import itertools
import logging
import os
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ait_llm.dump.api.graph_calls import GraphCalls
from ait_llm.dump.api.modules import ModuleWatch
from ait_llm.dump.api.recording import Recording
from ait_llm.dump.api.session import ApiSession
from ait_llm.dump.api.settings import ApiSettings, read_graph_settings
from ait_llm.dump.folders import make_folder
from ait_llm.dump.pytorch.compiling import is_compiling
from ait_llm.dump.pytorch.hooks import Hook
from ait_llm.dump.taps.replays import recordings
from ait_llm.errors import UsageError

_log = logging.getLogger(__name__)
_FEW = 0.1
"""Below this share of the modules with weights, a step was not that of a model which was run."""


class AclGraphDumper:
    """Records each step of a model from one ``start`` on.

    Args:
        config_path: a ``config.json``; ``level`` is L0 by default, ``task`` statistics or tensor.
        dump_path: the folder to write to, whatever the file says.

    Raises:
        UsageError: a setting means nothing here.

    Example:
        >>> dumper = AclGraphDumper("./config.json")  # doctest: +SKIP
        >>> dumper.start(model)  # doctest: +SKIP
        >>> warm_up(); dumper.step(dump=False)  # doctest: +SKIP
        >>> model(batch); dumper.step()  # doctest: +SKIP
    """

    def __init__(
        self, config_path: str | Path | None = None, dump_path: str | Path | None = None
    ) -> None:
        if config_path is None:
            raise UsageError("AclGraphDumper: give the name of a config.json")
        read = functools.partial(
            read_graph_settings, Path(config_path).absolute(), dump_path=dump_path
        )
        settings = read()
        self._session = ApiSession(settings, holds=True, hooks=False)
        if settings.enabled is not None:
            self._session.reread = read
        self._model: nn.Module | None = None
        self._expected: frozenset[int] = frozenset()
        self._seen: set[int] = set()
        self._handles: list[Any] = []
        self._graphs: GraphCalls | None = None
        self._modules: ModuleWatch | None = None
        self._custom: list[str] = []
        self._failed = False

    def start(self, model: nn.Module) -> None:
        """Begin to record, once, before the model is compiled or its graphs are recorded.

        Raises:
            UsageError: this is no module, the folder cannot be written, or ``custom_api`` names a
                function that is not there.
        """
        if not isinstance(model, nn.Module):
            raise UsageError(f"start: a torch.nn.Module, not {type(model).__name__}")
        self._add_custom(self._session.settings)
        folder = self._session.settings.dump_path
        try:
            make_folder(folder)
        except OSError as error:
            raise UsageError(
                f"{folder}: the capture cannot be written here ({error.strerror}); choose another "
                "dump_path"
            ) from error
        self._watch(model)
        self._model = model
        atexit.register(self.close)

    def step(self, dump: bool = True) -> None:
        """End a step.

        Args:
            dump: False forgets what was recorded since the last: it was no step of the program,
                but a warm-up.
        """
        if self._model is None:
            return
        if self._modules is not None:
            self._modules.rest()
        self._session.stop()
        if dump and self._session.wants_this():
            self._say_unseen()
        self._seen.clear()
        self._session.step(dump=dump)

    def close(self) -> None:
        """End the capture; a step that was not ended is none."""
        atexit.unregister(self.close)
        self._unwatch()
        self._session.stop()
        self._session.step(dump=False)
        self._session.close()

    def _watch(self, model: nn.Module) -> None:
        self._unwatch()
        parts = [each for each in model.modules() if each is not model and each._parameters]
        self._expected = frozenset(map(id, parts))

        def see(module: nn.Module, _args: Any) -> None:
            if not is_compiling() and not recordings.is_open:
                self._window()
                self._seen.add(id(module))

        self._handles = [
            part.register_forward_pre_hook(Hook(see), prepend=True) for part in (model, *parts)
        ]
        self._graphs = GraphCalls(model, self._session, self._window, self._see_in_graph)
        if self._session.settings.modules:
            self._modules = ModuleWatch(None, self._graphs)
            self._modules.install([model])

    def _unwatch(self) -> None:
        for handle in self._handles:
            handle.remove()
        if self._modules is not None:
            self._modules.remove()
        if self._graphs is not None:
            self._graphs.close()
        self._modules = self._graphs = None

    def _see_in_graph(self, module: nn.Module | None) -> None:
        """A graph ran a module, or a function of any."""
        self._seen |= self._expected if module is None else {id(module)}

    def _window(self) -> Recording | None:
        """Open the window of a step when its first call is seen, so that none is left empty."""
        if self._model is None or self._failed:
            return None
        try:
            if not self._session.is_open:
                self._session.start(self._model)
        except UsageError as error:
            self._failed = True
            _log.error("nothing more is captured: %s", error)
        recording = self._session.recording if self._session.is_open else None
        if self._modules is not None:
            self._modules.recording = recording
        return recording

    def _say_unseen(self) -> None:
        seen, all_parts = len(self._seen & self._expected), len(self._expected)
        if seen > _FEW * all_parts or not all_parts:
            return
        text = (
            f"step {self._session.step_number}: {all_parts - seen} of {all_parts} modules with "
            "weights were not seen, because compiled code or a replayed graph ran in their place; "
            "start the engine in eager mode (enforce_eager)"
        )
        self._session.note(text, replayed=all_parts - seen)
        _log.warning("%s", text)

    def _add_custom(self, settings: ApiSettings) -> None:
        for path in settings.custom_apis:
            if path not in self._custom:
                owner, name = _function(path)
                self._session.add_function(owner, name, path.rpartition(".")[0])
                self._custom.append(path)


def _function(path: str) -> tuple[Any, str]:
    """The object that holds a function, and its name there, of ``package.object.method``.

    Raises:
        UsageError: there is no such function.
    """
    parts = path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for name in parts[end:-1]:
            owner = getattr(owner, name, None)
        if callable(getattr(owner, parts[-1], None)):
            return owner, parts[-1]
    raise UsageError(f"custom_api: there is no function {path}")


_numbers: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)
_lock = threading.Lock()


def acl_save(x: Tensor, path: str) -> Tensor:
    """Save one tensor as ``{base}_{n}.pt`` beside ``path``, the n-th time from 0.

    Args:
        x: any tensor; it is not changed.
        path: such as ``dump/act.pt``; its folder must exist.

    Returns:
        ``x``.

    Raises:
        UsageError: the file cannot be written.
    """
    if is_compiling():
        torch._dynamo.graph_break()
    place = Path(path)
    with _lock:
        number = next(_numbers[os.fspath(place.absolute())])
    file = place.with_name(f"{place.stem}_{number}.pt")
    try:
        torch.save(x.detach().contiguous().cpu(), file)
    except (OSError, RuntimeError) as error:
        raise UsageError(f"acl_save: {file} cannot be written ({error})") from error
    return x
