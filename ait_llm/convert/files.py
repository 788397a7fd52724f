"""Single files and whole folders to another format."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

from ait_llm.convert.one_file import Conversion, Converted, convert_file, make_folder
from ait_llm.convert.remote import convert_elsewhere
from ait_llm.engine import Engine
from ait_llm.errors import FormatError, UsageError
from ait_llm.formats.save import SAVE_FORMATS
from ait_llm.storage import address

_TOGETHER = 32  # files that a thread takes at once: to wait for one costs more than a small file
_SHARES = 8  # of each thread at least, for large files


def convert_files(
    source: Path,
    output: Path,
    format_name: str,
    *,
    name: str | None = None,
    overwrite: bool = False,
    jobs: int = 1,
    engine: Engine | None = None,
    stop: threading.Event | None = None,
    on_file: Callable[[Path], None] | None = None,
) -> Converted:
    """Convert a file, or every tensor file below a folder.

    The tree of a folder is kept; a file becomes ``{stem}{suffix}``, or ``{stem}.{tensor}{suffix}``
    for each of several tensors where the format holds one. Layouts of a device become row-major.
    A file that cannot be read costs itself only.

    Args:
        source: a tensor file or a folder.
        output: the folder to write to.
        format_name: one of ``bin npy pt safetensors ge``.
        name: only that tensor of each file.
        overwrite: replace files that are there already.
        jobs: threads.
        engine: converts in other processes; see :func:`ait_llm.engine.open_engine`.
        stop: once it is set, files that nobody has begun are counted and left.
        on_file: called with each source when it is done.

    Raises:
        UsageError: the format is unknown, or there is no such source.
        FormatError: a single file cannot be converted.
    """
    if format_name not in SAVE_FORMATS:
        raise UsageError(f"{format_name!r} is no format; known: {', '.join(SAVE_FORMATS)}")
    if engine is not None:
        engine.look_for((address(source),))
    if not source.exists():
        raise UsageError(f"{source}: no such file or directory")
    make_folder(output)
    single = not source.is_dir()
    base = source.parent if single else source
    result = Converted()
    conversion = Conversion(output, format_name, name, overwrite)
    sources = list(_sources(source, output))
    if engine is not None and engine.remote:
        converted = convert_elsewhere(engine, conversion, base, sources)
    else:
        converted = _in_threads(partial(_unless, stop, conversion, base), sources, jobs)
    with closing(converted) as results:
        for one in results:
            result.files += one.files
            result.tensors += one.tensors
            result.widened += one.widened
            result.others += one.others
            result.problems += one.problems
            result.stopped += one.stopped
            if engine is not None and engine.remote and stop is not None and stop.is_set():
                result.stopped = len(sources) - len(result.files)
                break
            if on_file is not None:
                on_file(source)
    if engine is None or not engine.remote:
        result.problems += _gone(output, result.files)
    if single and result.others:
        raise FormatError(source, "is not one of the known tensor files")
    return result


def _gone(output: Path, files: Sequence[Path]) -> list[str]:
    """Files that were written and are not there any more, in one sentence."""
    gone = [path for path in files if not path.exists()]
    if not gone:
        return []
    return [
        f"{output}: {len(gone)} converted files, {gone[0].name} for one, are not there any more; "
        "something removed them meanwhile"
    ]


def _unless(
    stop: threading.Event | None, conversion: Conversion, base: Path, path: Path
) -> Converted:
    if stop is not None and stop.is_set():
        return Converted(stopped=1)
    return convert_file(conversion, base, path)


def _in_threads(
    work: Callable[[Path], Converted], sources: Sequence[Path], jobs: int
) -> Generator[Converted, None, None]:
    size = max(1, min(_TOGETHER, len(sources) // (jobs * _SHARES)))
    parts = [sources[first : first + size] for first in range(0, len(sources), size)]
    with ThreadPoolExecutor(jobs) as pool:
        for converted in pool.map(lambda part: [work(path) for path in part], parts):
            yield from converted


def _sources(source: Path, output: Path) -> Iterator[Path]:
    """Files below a folder, links left out, in a fixed order; what is written is not read."""
    if not source.is_dir():
        yield source
        return
    skipped = output.resolve()
    for path in sorted(source.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        if skipped != source.resolve() and skipped in path.resolve().parents:
            continue
        yield path
