"""Captures what a program computes with ATB: prepare, run the program, add up what came back."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from ait_llm.dump.earlier import earlier_runs
from ait_llm.dump.folders import refuse_link
from ait_llm.dump.ledger import ProcessRecord, read_ledger
from ait_llm.dump.leftovers import remove_leftovers
from ait_llm.dump.profiling import merge_profiling
from ait_llm.dump.summary import (
    DumpSummary,
    losses,
    missing_types,
    nothing_seen,
    summarise_process,
)
from ait_llm.errors import AitError, UsageError
from ait_llm.probe import (
    HostLibrary,
    ProbeConfig,
    ProbeLibrary,
    child_environment,
    find_host,
    find_probe,
    probe_environment,
    run_command,
)
from ait_llm.probe.launch import resolve_program
from ait_llm.probe.library import preloadable
from ait_llm.probe.writers import wait_for_writers

START_TIME_FORMAT = "%Y%m%d%H%M%S"
_DIRECTORY_MODE = 0o750
_TABLE_DIRECTORIES = ("operation_io_tensors", "kernel_io_tensors")


@dataclass(frozen=True, slots=True)
class AtbDumpPlan:
    """A capture that has been checked and can start.

    Attributes:
        words: the program and its arguments.
        config: what to capture and where.
        host: the acceleration library that the program is expected to load.
        probe: the library that will be preloaded.
        free_bytes: free space of the output's file system.
        earlier: what lies in the output already, in a sentence; None if nothing does.
    """

    words: tuple[str, ...]
    config: ProbeConfig
    host: HostLibrary
    probe: ProbeLibrary
    free_bytes: int
    earlier: str | None = None


def plan_atb_dump(
    words: Sequence[str],
    config: ProbeConfig,
    environ: Mapping[str, str],
    probe_library: Path | None = None,
) -> AtbDumpPlan:
    """Check everything that can be checked before the program runs, and create the output.

    Args:
        words: the program and its arguments, as :func:`ait_llm.probe.split_command` returns them.
        config: what to capture.
        environ: the user's environment.
        probe_library: a probe of the user's own in place of the packaged one.

    Raises:
        UsageError: the program does not exist, or the output cannot be written.
        ProbeError: no usable ATB or probe.
    """
    resolve_program(words, environ)
    host = find_host(environ)
    probe = find_probe(host.abi, environ, probe_library)
    free = _prepare_output(config.output)
    refuse_link(config.dump_dir)
    if free <= config.min_free_bytes:
        raise UsageError(
            f"{config.output} has {free} bytes free and the capture must leave "
            f"{config.min_free_bytes}; free some space, or lower --min-free"
        )
    return AtbDumpPlan(tuple(words), config, host, probe, free, earlier_runs(config.dump_dir))


def run_atb_dump(
    plan: AtbDumpPlan, environ: Mapping[str, str], output: IO[bytes] | None = None
) -> DumpSummary:
    """Run the program under the probe and report what was captured.

    The program's own failure is not an error here: see :attr:`DumpSummary.exit_code`.

    Args:
        plan: what :func:`plan_atb_dump` returned.
        environ: the user's environment.
        output: takes what the program prints; None leaves it our own streams.

    Raises:
        UsageError: the program cannot be started.
    """
    config = plan.config
    with _hand_over_directory(config) as hand_over:
        config = replace(config, hand_over=hand_over, start_time=_unused_start_time(config))
        before = _ledgers(config.dump_dir)
        # The file system's clock, which need not be ours, tells new files from old ones.
        started = _time_of(config.output)
        with preloadable(plan.probe.path) as library:
            environment = child_environment(environ, probe_environment(config), library)
            exit_code = run_command(plan.words, environment, output)
            wait_for_writers(config.output, config.start_time)
        after = _ledgers(config.dump_dir)
        changed = [path for path, state in after.items() if before.get(path) != state]
        return _collect(plan, config, exit_code, changed, started)


def _collect(
    plan: AtbDumpPlan, config: ProbeConfig, exit_code: int, ledgers: Sequence[Path], started: int
) -> DumpSummary:
    problems: list[str] = []
    notes = [plan.earlier] if plan.earlier is not None else []
    records: list[ProcessRecord] = []
    for path in ledgers:
        try:
            record = read_ledger(path, config.start_time)
        except OSError as error:
            problems.append(f"ledger {path} cannot be read ({error.strerror})")
            continue
        if record is not None:
            records.append(record)
    records.sort(key=lambda record: (record.devices, record.pid))
    running = any(record.running for record in records)
    for record in records:
        if not record.sealed and not record.running:  # its writer was killed too
            for folder in config.dump_dir.glob(f"*/*{record.pid}"):
                remove_leftovers(folder)

    tables = _new_files(config.dump_dir, _TABLE_DIRECTORIES, ".csv", started)
    if "cpu_profiling" in config.types:
        tables += _merge_profiling(config, problems, rewrite_text=not running)
    topologies = _new_files(config.dump_dir, ("layer", "model"), ".json", started)
    onnx = _convert_topologies(config, problems) if config.hand_over is not None else []

    foreign_files = 0
    if not records and not plan.probe.packaged:
        roots = _foreign_dumps(config.output)
        foreign_files = sum(_count_new_files(root, started) for root in roots)
        tensors = sum(_count_new_files(root, started, ".bin") for root in roots)
        if foreign_files and config.captures_tensors and not tensors:
            problems.append(
                f"the probe {plan.probe.path} wrote no tensor file; probes of 2026 take their "
                "settings from a file that ATB_DUMP_CONFIG names, not from this command"
            )
        notes.append(f"the probe {plan.probe.path} keeps no ledger, so what it lost cannot be told")
    if records:
        problems = [
            *losses(records),
            *missing_types(config, plan.host, records, topologies),
            *problems,
        ]
    elif not foreign_files:
        problems.insert(0, _no_ledger(plan, config, exit_code, started))
    return DumpSummary(
        exit_code=exit_code,
        dump_dir=config.dump_dir,
        processes=tuple(map(summarise_process, records)),
        topologies=tuple(topologies),
        tables=tuple(tables),
        onnx=tuple(onnx),
        statistics=tuple(_new_files(config.dump_dir, ("statistics",), ".csv", started)),
        files=foreign_files,
        problems=tuple(problems),
        notes=tuple(notes),
    )


def _no_ledger(plan: AtbDumpPlan, config: ProbeConfig, exit_code: int, started: int) -> str:
    if not config.output.is_dir() or (
        plan.probe.packaged and _count_new_files(config.dump_dir, started)
    ):
        return (
            f"the ledger is gone: {config.dump_dir} or a part of it was removed while the program "
            "ran, so what is missing cannot be told; dump again"
        )
    return nothing_seen(plan.words, plan.host, exit_code)


def _prepare_output(output: Path) -> int:
    """Create the directory, prove that files can be made in it, and return its free bytes."""
    try:
        output.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        _time_of(output)
        return shutil.disk_usage(output).free
    except OSError as error:
        raise UsageError(
            f"the output directory {output} cannot be written ({error.strerror}); "
            "give another one with -o"
        ) from error


def _time_of(directory: Path) -> int:
    """Nanoseconds on the clock of the file system that ``directory`` is on."""
    with tempfile.TemporaryFile(dir=directory) as file:
        return os.fstat(file.fileno()).st_mtime_ns


@contextmanager
def _hand_over_directory(config: ProbeConfig) -> Iterator[Path | None]:
    """The directory in which the probe lists topology files; only with type onnx."""
    if "onnx" not in config.types:
        yield None
        return
    directory = config.output / str(os.getpid())
    attempt = 0
    while True:
        try:
            directory.mkdir(mode=_DIRECTORY_MODE)
            break
        except FileExistsError:  # left by a killed launcher of the same pid
            attempt += 1
            directory = config.output / f"{os.getpid()}_{attempt}"
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _unused_start_time(config: ProbeConfig) -> str:
    """The start time, moved on by seconds until no earlier run has a directory of that name.

    The directory itself is made by the probe: the first process of a run takes the plain name, the
    others add their process id.
    """
    moment = time.mktime(time.strptime(config.start_time, START_TIME_FORMAT))
    while True:
        name = time.strftime(START_TIME_FORMAT, time.localtime(moment))
        if not (config.dump_dir / "cpu_profiling" / name).exists():
            return name
        moment += 1


def _ledgers(dump_dir: Path) -> dict[Path, tuple[int, int, int]]:
    """Every ledger with what changes when it is written to."""
    found = {}
    for path in (dump_dir / "ledger").glob("*.jsonl"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        found[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def _new_files(dump_dir: Path, directories: Sequence[str], suffix: str, started: int) -> list[Path]:
    """Files ``{directory}/{process}/*{suffix}`` that were written since ``started``."""
    return [
        path
        for directory in directories
        for path in sorted((dump_dir / directory).glob(f"*/*{suffix}"))
        if path.stat().st_mtime_ns >= started
    ]


def _count_new_files(directory: Path, started: int, suffix: str = "") -> int:
    return sum(
        os.lstat(os.path.join(folder, name)).st_mtime_ns >= started  # noqa: PTH118 - hot loop
        for folder, _, names in os.walk(directory)
        for name in names
        if name.endswith(suffix)
    )


def _foreign_dumps(output: Path) -> list[Path]:
    """Where probes of other makes write; some put the time behind the name."""
    return [path for name in ("ait_dump*", "msit_dump*", "atb_dump*") for path in output.glob(name)]


def _merge_profiling(config: ProbeConfig, problems: list[str], *, rewrite_text: bool) -> list[Path]:
    parent = config.dump_dir / "cpu_profiling"
    directories = [parent / config.start_time, *sorted(parent.glob(f"{config.start_time}_*"))]
    tables = []
    for directory in directories:
        try:
            merged = merge_profiling(directory, rewrite_text=rewrite_text)
        except AitError as error:
            problems.append(str(error))
            continue
        for profile in merged:
            tables.append(profile.table)
            if profile.unread_lines:
                problems.append(
                    f"{profile.table}: {profile.unread_lines} lines of the statistics were not "
                    "understood and are left out"
                )
    return tables


def _convert_topologies(config: ProbeConfig, problems: list[str]) -> list[Path]:
    """Convert each file that the probe listed; one that fails does not stop the others."""
    from ait_llm.topology.to_onnx import topology_to_onnx

    assert config.hand_over is not None
    listing = config.hand_over / "subprocess_info.txt"
    try:
        lines = listing.read_text("utf-8", "surrogateescape").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"{listing} cannot be read ({error.strerror}): no ONNX files")
        return []
    converted = []
    for line in dict.fromkeys(line for line in lines if line):
        path = Path(line)
        if not path.is_file():
            problems.append(f"{path} was reported but is gone: no ONNX file for it")
            continue
        try:
            converted.append(topology_to_onnx(path))
        except AitError as error:
            problems.append(f"{path} was not converted to ONNX: {error}")
    return converted
