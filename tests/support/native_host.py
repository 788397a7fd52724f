"""Hosts of the native probe for the tests: programs that call it as ATB does."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 120

# What the launcher sets for `ait llm dump` without options.
DEFAULTS = {
    "ATB_DUMP_TYPE": "tensor",
    "ATB_SAVE_TENSOR": "1",
    "ATB_SAVE_CHILD": "1",
    "ATB_SAVE_TENSOR_RANGE": "0,0",
    "ATB_SAVE_TENSOR_TIME": "1",
    "ATB_SAVE_TENSOR_PART": "2",
    "ATB_SAVE_TILING": "0",
    "ATB_AIT_LOG_LEVEL": "1",
}


@dataclass
class Run:
    """A host that has ended, with everything it left."""

    returncode: int
    stdout: str
    stderr: str
    output: Path

    @property
    def dump(self) -> Path:
        return self.output / "ait_dump"

    @property
    def summary(self) -> dict[str, Any]:
        """What a trace printed about itself."""
        loaded: dict[str, Any] = json.loads(self.stdout.splitlines()[-1])
        return loaded

    @property
    def pid(self) -> int:
        """The id of a script host."""
        return int(self.stdout.splitlines()[0].split()[1])

    @property
    def answers(self) -> list[bool]:
        """What the gates of a script said, in order."""
        lines = [line.split() for line in self.stdout.splitlines()[1:]]
        return [line[1] == "1" for line in lines]

    def bins(self, pattern: str = "*.bin") -> list[Path]:
        return sorted((self.dump / "tensors").rglob(pattern))

    def ledger(self, pid: int | None = None) -> list[dict[str, Any]]:
        """The lines of the only ledger, or of that process."""
        found = sorted((self.dump / "ledger").glob(f"*_{pid}.jsonl" if pid else "*.jsonl"))
        assert len(found) == 1, found
        return [json.loads(line) for line in found[0].read_text().splitlines()]

    def leftovers(self) -> list[Path]:
        """Temporary files that should be gone."""
        return list(self.output.rglob(".ait-*"))


@dataclass
class Host:
    """Starts drivers of one ABI with the probe of the same ABI in front of them."""

    abi: int
    output: Path
    probe: Path
    driver: Path
    settings: dict[str, str] = field(default_factory=lambda: dict(DEFAULTS))

    def environment(self, **settings: str | None) -> dict[str, str]:
        """The environment of a host; ``None`` leaves a variable out."""
        merged: dict[str, str | None] = {**self.settings, "ATB_OUTPUT_DIR": f"{self.output}/"}
        merged.update(settings)
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ATB_", "AIT_", "LD_PRELOAD"))
        }
        clean.update({name: value for name, value in merged.items() if value is not None})
        # The runtime of a sanitizer has to come first.
        runtime = os.environ.get("AIT_NATIVE_RUNTIME", "").split()
        clean["LD_PRELOAD"] = " ".join([*runtime, str(self.probe)])
        return clean

    def popen(
        self, mode: str, *, options: Sequence[str] = (), cwd: Path | None = None, **settings: Any
    ) -> subprocess.Popen[str]:
        """A running host."""
        self.output.mkdir(exist_ok=True)
        return subprocess.Popen(
            [self.driver, mode, *options],
            env=self.environment(**settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
        )

    def finish(self, process: subprocess.Popen[str], text: str | None = None) -> Run:
        """Waits for a host and for its writer, which shares its standard error."""
        stdout, stderr = process.communicate(text, timeout=TIMEOUT_SECONDS)
        return Run(process.returncode, stdout, stderr, self.output)

    def trace(self, *options: str, **settings: Any) -> Run:
        """Setup and Execute of the worked two-level graph."""
        return self.finish(self.popen("trace", options=options, **settings))

    def script(self, *lines: str, cwd: Path | None = None, **settings: Any) -> Run:
        """Single calls; fields of a line are separated by tabs."""
        process = self.popen("script", cwd=cwd, **settings)
        return self.finish(process, "".join(f"{line}\n" for line in lines))


def call(*fields: object) -> str:
    """One line of a script."""
    return "\t".join(str(value) for value in fields)


def tensor(path: str, data: str = "hex:003c00c00038007c", **desc: str) -> str:
    """A call of SaveTensor; fp16 [1,-2;0.5,inf] unless told otherwise."""
    return call(
        "tensor",
        desc.get("format", "2"),
        desc.get("dtype", "1"),
        desc.get("dims", "2,2"),
        path,
        data,
    )


def make_host(build: Path, abi: int, output: Path) -> Host:
    """Drivers of that ABI, writing below ``output``."""
    output.mkdir(exist_ok=True)
    return Host(
        abi,
        output,
        build / "lib" / f"libatb_probe_abi{abi}.so",
        build / "tests" / f"probe_driver_abi{abi}",
    )
