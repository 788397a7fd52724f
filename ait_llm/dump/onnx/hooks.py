"""Sessions of ONNX Runtime in a program that does not know of the capture."""

from __future__ import annotations

import contextlib
import functools
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ait_llm.core.notices import notice
from ait_llm.core.optional import import_optional
from ait_llm.dump.fx.options import FxOptions
from ait_llm.dump.fx.session import FxSession, sessions
from ait_llm.dump.inject.channel import report
from ait_llm.dump.onnx.capture import SessionCapture

_WEIGHTS_ASIDE = 1 << 10  # bytes from which a weight lies beside the graph: files end at 2 GB
_captures: weakref.WeakKeyDictionary[Any, SessionCapture] = weakref.WeakKeyDictionary()
_inner: weakref.WeakSet[Any] = weakref.WeakSet()  # sessions of ours
_said: set[str] = set()
_INPUTS, _OUTPUTS = "_ait_inputs", "_ait_outputs"  # what a binding knows of itself


def capture_sessions(options: FxOptions) -> None:
    """Capture every session that is made from now on.

    Raises:
        UsageError: the output cannot be written.
        MissingDependencyError: the package ``onnx`` is not installed.
    """
    import onnxruntime

    import_optional("onnx", "capturing sessions of ONNX Runtime", "onnx")

    session = sessions.get(options)
    kind = onnxruntime.InferenceSession
    _wrap(kind, "__init__", functools.partial(_made, session))
    _wrap(kind, "run", _run)
    _wrap(kind, "run_with_ort_values", _run)
    _wrap(kind, "run_with_iobinding", _run_bound)
    _wrap(kind, "run_async", _run_async)
    for name in ("bind_cpu_input", "bind_ortvalue_input", "bind_input"):
        _wrap(onnxruntime.IOBinding, name, _bound)
    for name in ("bind_output", "bind_ortvalue_output"):
        _wrap(onnxruntime.IOBinding, name, _bound_output)
    for name, known in (("clear_binding_inputs", _INPUTS), ("clear_binding_outputs", _OUTPUTS)):
        _wrap(onnxruntime.IOBinding, name, functools.partial(_cleared, known))


def _wrap(owner: type, name: str, around: Callable[..., Any]) -> None:
    """Have ``around(original, self, ...)`` called in the place of a method."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(original, self, *args, **kwargs)

    setattr(owner, name, call)


def _made(
    session: FxSession,
    original: Callable[..., None],
    self: Any,
    path_or_bytes: Any,
    sess_options: Any = None,
    *args: Any,
    **kwargs: Any,
) -> None:
    """Make the program's session, have it write its graph, and make ours of that."""
    import onnxruntime

    if self in _inner:
        original(self, path_or_bytes, sess_options, *args, **kwargs)
        return
    folder = Path(tempfile.mkdtemp(prefix="ait_onnx_"))
    weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
    settings = sess_options if sess_options is not None else onnxruntime.SessionOptions()
    written = folder / "graph.onnx"
    reason = None
    try:
        with _writing(settings, written):
            original(self, path_or_bytes, settings, *args, **kwargs)
    except Exception as error:  # noqa: BLE001 - perhaps the program's own, then it comes again
        reason = str(error).partition("\n")[0]
        original(self, path_or_bytes, sess_options, *args, **kwargs)
    try:
        if not written.is_file():
            _as_given(path_or_bytes, folder, written)
            session.note(
                "the graph is captured as the program gave it, before optimisation: ONNX Runtime "
                f"did not write what it runs ({reason})",
                remark=1,
            )
        capture = _captures[self] = _capture(session, written, settings, args, kwargs)
        report("graph", nodes=capture.nodes)
    except Exception as error:  # noqa: BLE001 - whatever fails here must not fail the program
        _failed("a session", error)


def _capture(
    session: FxSession, written: Path, settings: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> SessionCapture:
    import onnx
    import onnxruntime

    def open_session(path: str) -> Any:
        own = onnxruntime.InferenceSession.__new__(onnxruntime.InferenceSession)
        _inner.add(own)
        level = settings.graph_optimization_level
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            own.__init__(path, settings, *args, **kwargs)
        finally:
            settings.graph_optimization_level = level
        return own

    model = onnx.load(written, load_external_data=False)
    return SessionCapture(model, written.parent, open_session, session)


@contextlib.contextmanager
def _writing(settings: Any, path: Path) -> Iterator[None]:
    """Have the next session write the graph that it runs, with large weights beside it."""
    before = settings.optimized_model_filepath
    wanted = {
        "session.optimized_model_external_initializers_file_name": f"{path.name}.weights",
        "session.optimized_model_external_initializers_min_size_in_bytes": str(_WEIGHTS_ASIDE),
    }
    settings.optimized_model_filepath = str(path)
    for name, value in wanted.items():
        settings.add_session_config_entry(name, value)
    try:
        yield
    finally:
        settings.optimized_model_filepath = before
        if before and path.is_file():  # the program wanted it, too
            shutil.copyfile(path, before)


def _as_given(path_or_bytes: Any, folder: Path, written: Path) -> None:
    """Copy the program's own graph, with its weights in other files."""
    import onnx

    if isinstance(path_or_bytes, bytes):
        written.write_bytes(path_or_bytes)
        return
    model = onnx.load(path_or_bytes)
    onnx.save(
        model, written, save_as_external_data=True, location=f"{written.name}.weights",
        size_threshold=_WEIGHTS_ASIDE,
    )  # fmt: skip


def _run(
    original: Callable[..., Any],
    self: Any,
    output_names: Sequence[str] | None,
    inputs: Mapping[str, Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    results = original(self, output_names, inputs, *args, **kwargs)
    capture = _captures.get(self)
    if capture is not None:
        names = output_names or [each.name for each in self.get_outputs()]
        _guarded(capture, inputs, dict(zip(names, results, strict=False)))
    return results


def _run_async(
    original: Callable[..., Any],
    self: Any,
    output_names: Sequence[str] | None,
    inputs: Mapping[str, Any],
    callback: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    capture = _captures.get(self)
    if capture is None:
        return original(self, output_names, inputs, callback, *args, **kwargs)
    names = output_names or [each.name for each in self.get_outputs()]
    given = dict(inputs)

    def done(results: Sequence[Any], user_data: Any, error: str) -> None:
        if not error:
            _guarded(capture, given, dict(zip(names, results, strict=False)))
        callback(results, user_data, error)

    return original(self, output_names, inputs, done, *args, **kwargs)


def _bound(original: Callable[..., Any], self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Remember what a program binds to an input; only values that have an object of their own."""
    known = self.__dict__.setdefault(_INPUTS, {})
    known.pop(name, None)
    value = args[0] if args else next(iter(kwargs.values()), None)
    if not isinstance(value, str):  # bind_input names a device, and memory that we cannot hold
        known[name] = value
    return original(self, name, *args, **kwargs)


def _bound_output(
    original: Callable[..., Any], self: Any, name: str, *args: Any, **kwargs: Any
) -> Any:
    """Remember the order of what a program wants to have."""
    self.__dict__.setdefault(_OUTPUTS, {})[name] = None
    return original(self, name, *args, **kwargs)


def _cleared(known: str, original: Callable[..., Any], self: Any) -> Any:
    self.__dict__.pop(known, None)
    return original(self)


def _run_bound(
    original: Callable[..., Any], self: Any, iobinding: Any, *args: Any, **kwargs: Any
) -> Any:
    capture = _captures.get(self)
    given = dict(getattr(iobinding, _INPUTS, {}))
    result = original(self, iobinding, *args, **kwargs)
    if capture is not None:
        missing = [each.name for each in self.get_inputs() if each.name not in given]
        if missing:
            text = f"input {missing[0]} is bound by its address, where its values cannot be read"
            _failed("a run of a session", ValueError(text))
        else:
            names = getattr(iobinding, _OUTPUTS, {})
            _guarded(capture, given, dict(zip(names, iobinding.get_outputs(), strict=False)))
    return result


def _guarded(capture: SessionCapture, given: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    try:
        capture.after_run(given, results)
    except Exception as error:  # noqa: BLE001 - whatever fails here must not fail the program
        _failed("a run of a session", error)


def _failed(what: str, error: Exception) -> None:
    reason = f"{what} of ONNX Runtime: {type(error).__name__}: {error}"
    if reason not in _said:  # once, however often a program runs its session
        _said.add(reason)
        report("failed", reason=reason, executable=sys.executable)
        notice(f"not captured: {reason}")
