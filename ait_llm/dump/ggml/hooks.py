"""Contexts of llama.cpp in a program that does not know of the capture.

``llama-cpp-python`` makes a context with a structure of parameters, one of which is a function that
is called with each tensor, before and behind its computation.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ait_llm.core.notices import notice
from ait_llm.dump.fx.options import FxOptions
from ait_llm.dump.fx.session import FxSession, sessions
from ait_llm.dump.ggml.capture import ContextCapture
from ait_llm.dump.ggml.library import Library, library_of
from ait_llm.dump.ggml.packed import PackedWeights
from ait_llm.dump.inject.channel import report

_MAKERS = ("llama_init_from_model", "llama_new_context_with_model")
_LOADERS = ("llama_model_load_from_file", "llama_load_model_from_file")
_RUNS = ("llama_decode", "llama_encode")
_kept: list[Any] = []  # functions that C calls
_captures: dict[int, ContextCapture] = {}
_paths: dict[int, Path] = {}
_said: set[str] = set()


def capture_contexts(options: FxOptions) -> None:
    """Capture every context that is made from now on.

    Raises:
        UsageError: the output cannot be written.
        ProbeError: ggml's own library is not beside the package.
    """
    import llama_cpp  # type: ignore[import-not-found]
    from llama_cpp import llama_cpp as low

    session, library = sessions.get(options), library_of(llama_cpp)
    version = str(getattr(llama_cpp, "__version__", ""))
    for name in _LOADERS:
        _wrap(low, name, _loaded)
    for name in _MAKERS:
        _wrap(low, name, functools.partial(_made, low, library, session, version))
    for name in _RUNS:
        _wrap(low, name, _ran)


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Have ``around(original, ...)`` called in the place of a function."""
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(owner, name, call)
    package = sys.modules.get("llama_cpp")
    if getattr(package, name, None) is original:
        setattr(package, name, call)


def _loaded(original: Callable[..., Any], path: Any, *args: Any, **kwargs: Any) -> Any:
    model = original(path, *args, **kwargs)
    if model:
        text = path.decode("utf-8", "surrogateescape") if isinstance(path, bytes) else str(path)
        _paths[_number(model)] = Path(text).absolute()
    return model


def _made(
    low: Any,
    library: Library,
    session: FxSession,
    version: str,
    original: Callable[..., Any],
    model: Any,
    params: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Make the program's context with our function, in front of its own."""
    capture = ContextCapture(library, session, PackedWeights(_paths.get(_number(model))), version)
    own = params.cb_eval if params.cb_eval else None
    function = low.ggml_backend_sched_eval_callback(_Callback(capture, library, own))
    _kept.append(function)
    before, params.cb_eval = params.cb_eval, function
    try:
        context = original(model, params, *args, **kwargs)
    finally:
        params.cb_eval = before
    if context:
        _captures[_number(context)] = capture
        report("graph", nodes=0)
    return context


def _ran(original: Callable[..., Any], context: Any, *args: Any, **kwargs: Any) -> Any:
    result = original(context, *args, **kwargs)
    capture = _captures.get(_number(context))
    if capture is not None:
        try:
            capture.finish()
        except Exception as error:  # noqa: BLE001 - whatever fails here must not fail the program
            _failed(error)
    return result


class _Callback:
    """What llama.cpp calls with each tensor.

    Args:
        capture: takes the values.
        library: reads tensors.
        own: the program's function; None if it has none.
    """

    def __init__(self, capture: ContextCapture, library: Library, own: Any) -> None:
        self._capture, self._library, self._own = capture, library, own
        self._is_checked = self._is_broken = False
        self._own_wants = False

    def __call__(self, address: int, ask: bool, data: Any) -> bool:
        goes_on = True
        if self._own is not None and (ask or self._own_wants):
            goes_on = bool(self._own(address, ask, data))
            self._own_wants = ask and goes_on
        wants = self._guarded(address, ask)
        return wants or self._own_wants if ask else goes_on

    def _guarded(self, address: int, ask: bool) -> bool:
        if self._is_broken:
            return False
        try:
            if not self._is_checked:
                self._library.check(address)
                self._is_checked = True
            if ask:
                return self._capture.wants(address)
            self._capture.take(address)
        except Exception as error:  # noqa: BLE001 - whatever fails here must not fail the program
            self._is_broken = True
            _failed(error)
        return True


def _number(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def _failed(error: Exception) -> None:
    reason = f"llama.cpp: {type(error).__name__}: {error}"
    if reason not in _said:
        _said.add(reason)
        report("failed", reason=reason, executable=sys.executable)
        notice(f"not captured: {reason}")
