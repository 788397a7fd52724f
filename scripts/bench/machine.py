"""Facts about the machine that figures depend on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path


def machine(folder: Path) -> dict[str, str]:
    """Processor, memory, system and versions; the file system is that of ``folder``."""
    import numpy
    import torch

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory:.0f} GiB",
        "system": f"{_distribution()}, kernel {_kernel()}, {platform.machine()}",
        "file system": _file_system(folder),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "Python": platform.python_version(),
        "NumPy": numpy.__version__,
        "PyTorch": torch.__version__,
        "compiler": _first_line(os.environ.get("CXX", "c++"), "--version"),
    }


def processor() -> str:
    """Its model as the system names it, and its widest vector unit."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    known = flags[1].split() if flags else []
    wide = {"avx512f": "AVX-512", "avx2": "AVX2", "sve": "SVE", "asimd": "NEON"}
    unit = next((name for flag, name in wide.items() if flag in known), "")
    name = model[1].strip() if model else platform.machine()
    return f"{name} ({unit})" if unit else name


def _kernel() -> str:
    return platform.release().partition("-")[0]


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()


def _file_system(folder: Path) -> str:
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, place, kind, *_ = line.split(" ")
        if folder.resolve().is_relative_to(place) and len(place) >= len(best[0]):
            best = place, kind
    return best[1]


def _first_line(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0]
