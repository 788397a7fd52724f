"""What this machine offers, and what each missing thing disables.

Packages that load drivers can crash or hang, so each is imported in a process of its own.
"""

from __future__ import annotations

import importlib.util
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import ait_llm
from ait_llm.core import StepRange
from ait_llm.dump.atb import plan_atb_dump, run_atb_dump
from ait_llm.errors import AitError, ProbeError
from ait_llm.probe import ProbeConfig
from ait_llm.probe.builds import native_builds
from ait_llm.probe.library import find_embedded, find_host, find_packaged, find_probe, inspect_host

Status = Literal["ok", "absent", "broken"]
_IMPORT_SECONDS = 120  # the first import of torch_npu on a cold network disk takes most of a minute
_LOW_SPACE = 10 * 2**30


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked for.

    Attributes:
        name: what.
        status: ``ok``, ``absent``, or ``broken`` (there, but not usable).
        detail: version and place, or what is wrong.
        disables: what does not work without it; empty if nothing does.
        essential: the embedded default needs it.
    """

    name: str
    status: Status
    detail: str
    disables: str = ""
    essential: bool = False


@dataclass(frozen=True, slots=True)
class _Package:
    module: str
    disables: str
    essential: bool = False


_PACKAGES = (
    _Package("torch", "golden operators, hostatb and its demo programs, .pt files", essential=True),
    _Package("torch_npu", "capturing on an Ascend device"),
    _Package("torchair", "dumps of torchair graphs"),
    _Package("torch_atb", "rerunning single operations on an Ascend device"),
    _Package("onnx", "ONNX models of a topology (--type onnx)"),
    _Package("safetensors", ".safetensors files"),
)


def check_machine(environ: Mapping[str, str], directory: Path) -> list[Finding]:
    """Look for everything, in the order in which a user would ask.

    Args:
        environ: the environment to judge.
        directory: where a capture would be written.
    """
    with ThreadPoolExecutor(max_workers=4) as pool:
        packages = pool.map(lambda package: _check_package(package, environ), _PACKAGES)
        findings = [
            _check_python(),
            *packages,
            _check_atb(environ),
            _check_cann(environ),
            *(_check_probe(abi, environ) for abi in (0, 1)),
            _check_embedded(environ),
            _check_builds(environ),
            _check_space(directory),
            _check_preload(environ),
        ]
    ready = all(finding.status == "ok" for finding in findings if finding.essential)
    return [*findings, _check_capture(environ, ready)]


def _check_python() -> Finding:
    version = f"{platform.python_version()} ({sys.executable}), {platform.machine()}"
    return Finding("Python", "ok", version, essential=True)


def _check_package(package: _Package, environ: Mapping[str, str]) -> Finding:
    def finding(status: Status, detail: str) -> Finding:
        disables = "" if status == "ok" else package.disables
        return Finding(package.module, status, detail, disables, package.essential)

    if importlib.util.find_spec(package.module) is None:
        return finding("absent", "not installed")
    code = (
        f"import json, {package.module} as m\n"
        "print('\\n' + json.dumps([str(getattr(m, '__version__', '')), str(m.__file__)]))"
    )
    try:
        result = subprocess.run(
            [sys.executable, "-c", code],
            env=dict(environ),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_IMPORT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return finding("broken", f"importing it took more than {_IMPORT_SECONDS} s")
    if result.returncode != 0:
        code_text = f"exit code {result.returncode}"
        if result.returncode < 0:
            code_text = f"the interpreter crashed with signal {-result.returncode}"
        last = (result.stderr.strip().splitlines() or [""])[-1]
        return finding("broken", f"cannot be imported: {last or code_text}")
    version, file = json.loads(result.stdout.strip().splitlines()[-1])
    return finding("ok", f"{version or 'unknown version'} ({Path(file).parent})")


def _check_atb(environ: Mapping[str, str]) -> Finding:
    disables = "capturing programs on an Ascend device; the embedded CPU library is used"
    if not environ.get("ATB_HOME_PATH"):
        return Finding("ATB", "absent", "ATB_HOME_PATH is not set", disables)
    try:
        host = find_host(environ)
    except ProbeError as error:
        return Finding("ATB", "broken", str(error), disables)
    age = "8.3 or later" if host.recent else "before 8.3"
    detail = f"{host.path}, C++ ABI {host.abi} ({host.evidence}), interface of {age}"
    if host.warnings:
        return Finding("ATB", "broken", f"{detail}; {'; '.join(host.warnings)}", "capturing")
    return Finding("ATB", "ok", detail)


_VERSION = re.compile(r"^\s*(?:version|Version)\s*=\s*\[?([\w.:-]+)", re.MULTILINE)


def _check_cann(environ: Mapping[str, str]) -> Finding:
    disables = "device runs; captures on the CPU work without it"
    home = environ.get("ASCEND_TOOLKIT_HOME") or environ.get("ASCEND_HOME_PATH")
    root = Path(home or "/usr/local/Ascend/ascend-toolkit/latest")
    if not root.is_dir():
        where = f"ASCEND_TOOLKIT_HOME is {home}, which" if home else str(root)
        return Finding("CANN", "broken" if home else "absent", f"{where} does not exist", disables)
    names = ("version.info", "version.cfg", "ascend_toolkit_install.info", "version/version.info")
    for path in (*(root / name for name in names), *sorted(root.glob("*/*_install.info"))):
        try:
            match = _VERSION.search(path.read_text("utf-8", "replace"))
        except OSError:
            continue
        if match:
            return Finding("CANN", "ok", f"{match.group(1)} ({root})")
    return Finding("CANN", "ok", f"unknown version ({root})")


def _check_probe(abi: int, environ: Mapping[str, str]) -> Finding:
    try:
        probe = find_probe(abi, environ)
    except ProbeError as error:
        built = find_packaged(f"libatb_probe_abi{abi}.so", environ) is not None
        disables = f"capturing programs whose ATB has C++ ABI {abi}"
        status: Status = "broken" if built else "absent"
        return Finding(f"probe, ABI {abi}", status, str(error), disables, abi == 1)
    return Finding(f"probe, ABI {abi}", "ok", str(probe.path), essential=abi == 1)


def _check_embedded(environ: Mapping[str, str]) -> Finding:
    disables = "every command on a machine without an Ascend device"
    path = find_embedded(environ)
    if path is None:
        detail = "the embedded CPU library is not built; install ait-llm with its native part"
        return Finding("hostatb", "absent", detail, disables, essential=True)
    try:
        host = inspect_host(path, str(path.parent.parent), embedded=True)
    except ProbeError as error:
        return Finding("hostatb", "broken", str(error), disables, essential=True)
    return Finding("hostatb", "ok", f"{path}, C++ ABI {host.abi}", essential=True)


def _check_builds(environ: Mapping[str, str]) -> Finding:
    builds = native_builds(environ)
    groups: dict[str, list[str]] = {}
    for each in builds:
        groups.setdefault(each.text, []).append(each.name)
    compilers = {each.compiler for each in builds if each.compiler}
    if all(each.build_id for each in builds) and len(compilers) == 1:
        ids = ", ".join(f"{each.name.replace(', ABI ', ' ')} {each.build_id}" for each in builds)
        return Finding("native", "ok", f"{compilers.pop()}; builds: {ids}")
    detail = "; ".join(f"{' and '.join(names)}: {text}" for text, names in groups.items())
    slower = "fast metrics and statistics; NumPy takes their place"
    missing = [each.name for each in builds if each.path is None]
    lost = slower if {"metrics", "statistics"} & set(missing) else ""
    return Finding("native", "absent" if missing else "broken", detail, lost)


def _check_space(directory: Path) -> Finding:
    try:
        usage = shutil.disk_usage(directory)
    except OSError as error:
        return Finding("disk", "broken", f"{directory}: {error.strerror}", "writing there")
    detail = f"{usage.free / 2**30:.1f} GiB of {usage.total / 2**30:.1f} GiB free in {directory}"
    low = "tensors of a large model; give another directory with -o, or use -sd"
    return Finding("disk", "ok", detail, low if usage.free < _LOW_SPACE else "")


def _check_preload(environ: Mapping[str, str]) -> Finding:
    value = environ.get("LD_PRELOAD", "").strip(": ")
    if not value:
        return Finding("LD_PRELOAD", "ok", "not set; the probe will be the only entry")
    if "libatb_probe" in value:
        detail = f"{value} holds a probe already; unset it, or tensors are captured twice"
        return Finding("LD_PRELOAD", "broken", detail, "capturing with our probe alone")
    return Finding("LD_PRELOAD", "ok", f"{value}; the probe is put before it")


# One addition on hostatb: enough to see that the probe is called and that its files arrive.
_PROGRAM = """
import torch
import ait_llm.hostatb as torch_atb
param = torch_atb.ElewiseParam(elewise_type=torch_atb.ElewiseParam.ElewiseType.ELEWISE_ADD)
operation = torch_atb.Operation(param)
x = torch.ones(2, 2, dtype=torch.float16)
(result,) = operation.forward([x, x])
raise SystemExit(0 if bool((result == 2).all()) else 9)
"""


def _check_capture(environ: Mapping[str, str], ready: bool) -> Finding:
    def finding(status: Status, detail: str) -> Finding:
        disables = "" if status == "ok" else "ait llm dump with the embedded CPU library"
        return Finding("capture", status, detail, disables, essential=True)

    if not ready:
        return finding("absent", "not tried, because something that it needs is missing")
    embedded = {name: value for name, value in environ.items() if name != "ATB_HOME_PATH"}
    path = embedded.get("PYTHONPATH")
    checkout = str(Path(ait_llm.__file__).parent.parent)
    embedded["PYTHONPATH"] = f"{checkout}:{path}" if path else checkout
    return _try_capture(embedded, finding)


def _try_capture(environ: Mapping[str, str], finding: Callable[[Status, str], Finding]) -> Finding:
    with tempfile.TemporaryDirectory(prefix="ait-doctor-") as directory:
        config = ProbeConfig(
            output=Path(directory),
            start_time="20000101000000",
            steps=StepRange.parse("0,0"),
            min_free_bytes=0,
        )
        try:
            plan = plan_atb_dump([sys.executable, "-c", _PROGRAM], config, environ)
            with tempfile.TemporaryFile() as output:
                summary = run_atb_dump(plan, environ, output)
                output.seek(0)
                said = output.read().decode("utf-8", "replace").strip()
        except AitError as error:
            return finding("broken", str(error))
        if summary.exit_code:
            last = said.splitlines()[-1] if said else "it said nothing"
            return finding(
                "broken", f"the trial program failed with code {summary.exit_code}: {last}"
            )
        if summary.problems:
            return finding("broken", "; ".join(summary.problems))
        return finding(
            "ok",
            f"a trial run on hostatb saved {summary.total('tensors')} tensors and was sealed",
        )
