"""The ``acl`` modes: an NPU writes what the kernels of one call computed.

``torch_npu`` starts and ends the dump; its own configuration file says where it goes. Nothing of it
exists on other devices, and these functions say so.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ait_llm.core.optional import import_optional
from ait_llm.dump.api.calls import first_tensor
from ait_llm.dump.api.names import Api
from ait_llm.dump.ptdbg.recording import Numbers
from ait_llm.dump.ptdbg.settings import ScopeWatch, Switch, SwitchError, check_characters
from ait_llm.errors import FormatError, MissingDependencyError, UsageError
from ait_llm.formats import read_npy
from ait_llm.formats.opening import read_small

_log = logging.getLogger(__name__)
_MAX_CONFIG = 1 << 20
# Where the functions of a prefix are.
_PLACES = {
    "Torch": "torch",
    "Tensor": "torch:Tensor",
    "Functional": "torch.nn.functional",
    "VF": "torch:_VF",
    "NPU": "torch_npu",
    "Distributed": "torch.distributed",
}


def load_torch_npu() -> ModuleType:
    """torch_npu, where there is one.

    Raises:
        MissingDependencyError: there is none; the text says what works without it.
    """
    try:
        return import_optional("torch_npu", "dump_mode='acl'")
    except MissingDependencyError:
        raise MissingDependencyError(
            "dump_mode='acl' writes what the kernels of an NPU compute and needs torch_npu, which "
            "is not installed. On an NPU host install torch_npu; a CPU or GPU has no such kernels: "
            "leave dump_mode='acl' out there and capture the inputs and outputs of the API"
        ) from None


def checked_config(dump_config: str | Path | None) -> Path:
    """The configuration of a kernel dump, after a look into it.

    Raises:
        SwitchError: there is none, or it is not named ``.json``.
        FormatError: it does not say where the dump goes.
    """
    if dump_config is None:
        raise SwitchError("dump_mode is acl mode, dump_config must be configured.")
    path = Path(dump_config).absolute()
    check_characters(path)
    if path.suffix != ".json":
        raise SwitchError("dump_config must be configure json file.")
    try:
        content = json.loads(read_small(path, _MAX_CONFIG))
    except (ValueError, RecursionError):
        raise FormatError(path, "is not JSON") from None
    inner = content.get("dump") if isinstance(content, dict) else None
    if not isinstance(inner, dict) or not isinstance(inner.get("dump_path"), str):
        raise FormatError(
            path,
            "does not say where the dump goes",
            'It is {"dump": {"dump_list": [], "dump_path": "./output", "dump_mode": "all", '
            '"dump_op_switch": "on"}}',
        )
    return path


class KernelDump:
    """Starts and ends the dump of the device.

    Args:
        config: JSON file that says where it goes.

    Raises:
        MissingDependencyError: there is no torch_npu.
    """

    def __init__(self, config: Path) -> None:
        self._npu: Any = load_torch_npu().npu
        self._config = config

    def start(self) -> None:
        """Begin: what runs from now on is written."""
        self._npu.init_dump()
        self._npu.set_dump(str(self._config))
        self._npu.synchronize()

    def finish(self, name: str) -> None:
        """End it."""
        self._npu.synchronize()
        self._npu.finalize_dump()
        _log.info("Dump %s op file.", name)

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Write what runs within."""
        self.start()
        try:
            yield
        finally:
            self.finish(name)

    def rerun(
        self, name: str, found: Api, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        """Run a forward call again while the device writes."""
        module, _, inside = _PLACES[found.prefix].partition(":")
        owner: Any = importlib.import_module(module)
        function = getattr(getattr(owner, inside) if inside else owner, found.name)
        with self.of(name), torch.no_grad():
            function(*args, **kwargs)


class _Call(NamedTuple):
    """A call whose kernels are dumped.

    Attributes:
        name: of the call.
        parent: ptdbg knows no modules.
        args: what it got.
    """

    name: str
    parent: None
    args: tuple[Any, ...]


class KernelRecording:
    """Has the device write the kernels of the one call that a scope names.

    Args:
        numbers: of the calls.
        kernels: the dump of the device.
    """

    def __init__(self, numbers: Numbers, kernels: KernelDump) -> None:
        self.backward = False
        self.active = True
        self.gradient_files: tuple[Path, ...] = ()
        self.matched = 0
        self._numbers = numbers
        self._kernels = kernels
        self._scope = ScopeWatch(Switch(False))
        self._is_backward = False

    def turn(self, switch: Switch) -> None:
        """Begin a window, or end it; the scope names one call."""
        self._is_backward = bool(switch.scope) and "backward" in switch.scope[0]
        self._scope = ScopeWatch(switch)

    def wants(self, found: Api) -> bool:
        """Every function: numbers count calls inside a scope and outside."""
        return True

    def left_out(self, found: Api) -> _Call | None:
        """None: calls whose backward calls may be wanted are begun as others are."""

    def begin(
        self, found: Api, args: tuple[Any, ...], kwargs: Any, frame: Any, modules: Any
    ) -> _Call | None:
        """Start the dump of a forward call; None if it is not the one."""
        del kwargs, frame, modules
        name = self._numbers.name(found)
        if not self._scope.wants(name, f"{found.prefix}_{found.name}"):
            return None
        self.matched += 1
        if not self._is_backward:
            self._kernels.start()
        return _Call(name, None, args)

    def end(self, call: _Call, output: Any, found: Api | None = None) -> None:
        """End it; of a backward call, run that now."""
        if not self._is_backward:
            self._kernels.finish(call.name)
            return
        name = call.name.removesuffix("forward") + "backward"
        tensor = first_tensor(output)
        inputs = [each for each in _tensors(call.args) if each.requires_grad]
        if tensor is None or not tensor.requires_grad or not inputs:
            _log.warning(
                "The output of %s is not of tensor type and cannot be automatically derived; "
                "its backward kernels are not dumped",
                name,
            )
            return
        if not self.gradient_files:
            raise UsageError(f"{name}: call set_backward_input with the file of its gradient first")
        values = read_npy(self.gradient_files[0]).torch()
        gradient = values.to(device=tensor.device, dtype=tensor.dtype).reshape(tensor.shape)
        with self._kernels.of(name):
            torch.autograd.grad(tensor, inputs, gradient, retain_graph=True, allow_unused=True)

    def raised(self, call: _Call, error: BaseException) -> None:
        """End the dump of a call that raised."""
        if not self._is_backward:
            self._kernels.finish(call.name)

    def drop(self, call: _Call) -> None:
        """End the dump of an operator that left it to the other side."""
        if not self._is_backward:
            self._kernels.finish(call.name)

    def gradients(self, name: str, parent: str | None, arriving: Any, leaving: Any) -> None:
        """Nothing: the backward call is run anew, with the gradient of a file."""


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)
