"""The ledger of a ptdbg capture: what was written of each call, and whether the capture ended.

It lies beside the folder of the tag, where neither ptdbg nor we expect anything else:
``{folder}/ledger/{tag}_v{version}/rank{N}_{PID}.jsonl``.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

from ait_llm.dump.ptdbg.settings import Switch
from ait_llm.dump.pytorch.ledger import Ledger
from ait_llm.dump.pytorch.tensor_jobs import Outcome
from ait_llm.errors import UsageError

_LEDGER = re.compile(r"(rank\d+)_\d{1,18}\.jsonl")


class PtdbgAccount:
    """Writes the ledger of one process.

    Args:
        folder: of the rank, ``{folder}/{tag}_v{version}/rank{N}``.

    Raises:
        UsageError: it cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._rank = folder.name
        ledgers = folder.parent.parent / "ledger" / folder.parent.name
        path = ledgers / f"{self._rank}_{os.getpid()}.jsonl"
        try:
            _remove_earlier(ledgers, self._rank)
            self._ledger = Ledger(path, self._rank, {}, producer="ptdbg")
        except OSError as error:
            raise UsageError(
                f"{path}: the ledger of the capture cannot be written here ({error.strerror}); "
                "choose another path in set_dump_path"
            ) from error

    def window(self, switch: Switch, path: Path) -> None:
        """Note what is captured from here on, and into which file."""
        self._ledger.note(
            "window",
            path=self._path(path),
            mode=switch.mode,
            scope=list(switch.scope),
            direction=switch.direction,
        )

    def call(self, name: str, path: Path, outcome: Outcome, *, has_lines: bool) -> None:
        """Note a call whose lines are in the file.

        Args:
            name: ``Torch_relu_0_forward``.
            path: of the file.
            outcome: what became of its arrays.
            has_lines: whether there is anything of it in the file.
        """
        line: dict[str, Any] = {
            "op": name,
            "type": "_".join(name.split("_")[:-2]),
            "path": self._path(path),
            "step": 0,
            "state": "saved" if outcome.tensors else "described" if has_lines else "empty",
        }
        if outcome.tensors:
            line["tensors"] = outcome.tensors
        if outcome.lost:
            line["state"] = "failed"
            line["lost"] = outcome.lost
            line["errno"] = outcome.errno
            line["reason"] = outcome.reason
        self._ledger.operations([line])

    def pause(self) -> None:
        """Note that everything up to here is in the files."""
        self._ledger.pause("stop")

    def close(self) -> None:
        """End the ledger."""
        self._ledger.seal("exit")

    def _path(self, path: Path) -> str:
        return f"{self._rank}/{path.name}"


def _remove_earlier(ledgers: Path, rank: str) -> None:
    """Remove what an earlier run of this rank left: its files are replaced too."""
    if ledgers.is_symlink() or not ledgers.is_dir():
        return
    for path in ledgers.iterdir():
        found = _LEDGER.fullmatch(path.name)
        if found is not None and found[1] == rank:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
