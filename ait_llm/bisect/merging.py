"""Puts the values that a run captured into the dump of statistics that came before.

The dump becomes sharper with each run and stays one dump: every command can read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ait_llm.bisect.repeating import Unrepeated, difference, unrepeated
from ait_llm.compare.origin_run import operation_key
from ait_llm.dumps import Dump, open_dump
from ait_llm.dumps.torch_place import process_id
from ait_llm.errors import IncompleteError
from ait_llm.match.pairing import pair_processes

_TENSORS = {"atb": "tensors", "torch": "torch_tensors"}
_SUFFIXES = {"atb": (".bin", ".json"), "torch": (".pth",)}


def merge(captured: Path, into: Path) -> Unrepeated | None:
    """Move the tensors of one run into the dump of another run of the same program.

    Args:
        captured: the folder of a run that captured values and statistics.
        into: the folder of the run whose statistics are there.

    Returns:
        The first tensor whose statistics are not those of the earlier run; None if all are.

    Raises:
        IncompleteError: the processes of the two runs do not answer each other.
        AitError: a capture is damaged.
    """
    new, old = open_dump(captured), open_dump(into)
    pairs, problems = pair_processes(new, old)
    strange = [problem.text for problem in problems if problem.side == "golden"]  # the new run's
    if strange or not pairs:
        text = strange[0] if strange else "no process captured anything"
        raise IncompleteError(f"{captured}: its processes are not those of {into}: {text}")
    different: Unrepeated | None = None
    moves: list[tuple[Path, Path]] = []
    for one, other, _ in pairs:
        if different is None:
            different = _first_difference(
                new, old, (one.device, one.pid), (other.device, other.pid)
            )
        source = _folder(new, one.device, one.pid)
        target = _folder(old, other.device, other.pid)
        moves += [(path, target / path.relative_to(source)) for path in _files(new.kind, source)]
    for path, goal in moves:
        goal.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        path.replace(goal)
    return different


def _first_difference(
    new: Dump, old: Dump, one: tuple[int, int], other: tuple[int, int]
) -> Unrepeated | None:
    before = {
        operation_key(operation): operation
        for operation in old.operations(device=other[0], pid=other[1])
    }
    for operation in new.operations(device=one[0], pid=one[1]):
        earlier = before.get(operation_key(operation))
        if earlier is None:
            return unrepeated(operation, None, "an earlier run did not execute it")
        known = {tensor.name: tensor for tensor in (*earlier.inputs, *earlier.outputs)}
        for tensor in (*operation.inputs, *operation.outputs):
            # What was captured before an operation has no counterpart among what came after it.
            if tensor.name not in known or tensor.phase != known[tensor.name].phase:
                continue
            if detail := difference(known[tensor.name], tensor):
                return unrepeated(operation, tensor, detail)
    return None


def _folder(dump: Dump, device: int, pid: int) -> Path:
    """The folder of one process."""
    tensors = dump.root / _TENSORS[dump.kind]
    if dump.kind == "atb":
        return tensors / f"{device}_{pid}"
    (found,) = [path for path in tensors.iterdir() if process_id(path.name) == pid]
    return found


def _files(kind: str, folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name.endswith(_SUFFIXES[kind]):
            if kind == "torch" and path.parent == folder:
                continue
            yield path
