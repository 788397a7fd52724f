"""``ait llm opcheck``: every operator of a dump against what it should have computed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from pathlib import Path
from typing import Any

import click

from ait_llm.cli.completed import CompletedWords, operator_names
from ait_llm.cli.console import WORDS, tell
from ait_llm.cli.engine_options import engine_options, take_engine
from ait_llm.cli.fault import keeping, tell_faults
from ait_llm.cli.machine import emit
from ait_llm.cli.opcheck_selftest import self_test
from ait_llm.cli.opcheck_text import summary_lines
from ait_llm.cli.params import (
    ListOption,
    ManyOption,
    WordsCommand,
    absolute_path,
    allow_skip_option,
    comma_list,
    input_path,
    json_option,
    message_options,
    output_path,
)
from ait_llm.cli.processors import shared_processors
from ait_llm.cli.progress import ProgressLine
from ait_llm.cli.summaries import (
    Build,
    baseline_option,
    places_in,
    split_summaries,
    summary_against,
)
from ait_llm.compare import stop_on_signals
from ait_llm.core.optional import import_optional
from ait_llm.errors import UsageError
from ait_llm.judge.standards import standards
from ait_llm.opcheck.baseline import OpcheckBaseline, exit_code
from ait_llm.opcheck.kernel_source import source_of
from ait_llm.opcheck.outcome import FAIL_ON, FailOn, OpcheckReport
from ait_llm.opcheck.pipeline import opcheck as check_dump
from ait_llm.opcheck.plugins import load_golden
from ait_llm.opcheck.reports import (
    SUFFIXES,
    as_json,
    free_stem,
    write_reports,
)
from ait_llm.opcheck.reports.summary import opcheck_summary
from ait_llm.opcheck.repro import Repros
from ait_llm.opcheck.rerun import Backend, FunctionBackend, choose_backend, function_backend
from ait_llm.opcheck.selection import Wanted, operation_ids
from ait_llm.report.baseline import Against
from ait_llm.report.files import make_folder
from ait_llm.report.summary import SourceLine
from ait_llm.report.wording import printable

FORMATS = (*SUFFIXES, "github", "sarif")


def _words(_ctx: click.Context, _param: click.Parameter, value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else value or ()
    return tuple(dict.fromkeys(name for text in texts for name in comma_list(text)))


@click.command(cls=WordsCommand)
@click.option(
    "-i",
    "--input",
    "path",
    callback=input_path,
    metavar="DIR",
    help="Tensors of ait llm dump --type tensor: OUTPUT_DIR/PID_TID/0/, or any folder of a dump; "
    "or of --type torch-op --weights.  [required, or --self-test]",
)
@click.option(
    "-c",
    "--csv-path",
    "table",
    callback=input_path,
    metavar="FILE",
    help="Table of ait llm dump --type op, operation_tensors_0.csv: the operators to check and "
    "their parameters.  [default: all operators in the dump, with its own parameters]",
)
@click.option(
    "-o",
    "--output",
    default="./",
    show_default=True,
    callback=output_path,
    metavar="DIR",
    help="Directory for the reports.",
)
@click.option(
    "-ids",
    "--operation-ids",
    "ids",
    cls=ListOption,
    callback=_words,
    metavar="ID,...",
    help="Only these operations and what is within them: 24_1,2_3_5.  [default: all]",
)
@click.option(
    "-opname",
    "--operation-name",
    "names",
    cls=ListOption,
    type=CompletedWords(operator_names, comma=True),
    callback=_words,
    metavar="NAME,...",
    help="Only types that contain one of these, in any case: self,linear.  [default: all]",
)
@click.option(
    "-metric",
    "--precision-metric",
    "metrics",
    cls=ManyOption,
    type=CompletedWords(lambda: ("abs", "cos_sim", "kl")),
    callback=_words,
    metavar="NAME ...",
    help="Further columns: abs (rate of the absolute error), cos_sim, kl.  [default: none]",
)
@click.option(
    "-device",
    "--device-id",
    "device",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="The NPU of --atb-rerun.",
)
@click.option(
    "-rerun",
    "--atb-rerun",
    "--rerun",
    "rerun",
    is_flag=True,
    help="Run each operator again from its dumped inputs with torch_atb on an NPU, and compare "
    "golden, rerun and dump.",
)
@click.option(
    "--rerun-with",
    metavar="MODULE:FUNCTION",
    help="The same with another implementation: a function of the name, inputs and parameters of "
    "an operator, in a module or .py file.  [default: none]",
)
@click.option(
    "--standard",
    type=CompletedWords(standards.names),
    metavar="NAME",
    help=f"What an output may differ from golden: one of {', '.join(standards.names())}.  "
    "[default: contract]",
)
@click.option(
    "--soc",
    metavar="NAME",
    help="The chip that ran it, such as Ascend910B3 or Ascend310P3: kernels of some operators "
    "compute differently on each.  [default: what the table or the dump says, else what kernels "
    "of any chip do is permitted]",
)
@click.option(
    "--golden",
    "golden",
    cls=ManyOption,
    metavar="MODULE ...",
    help="Modules or .py files with golden operators of your own (@golden_op).  [default: none]",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1),
    help="Threads, or worker processes; with --atb-rerun always one.  [default: one for each "
    "processor]",
)
@engine_options
@click.option(
    "--format",
    "formats",
    cls=ManyOption,
    type=CompletedWords(lambda: FORMATS),
    callback=_words,
    metavar="NAME ...",
    help=f"Reports to write, one or more of {', '.join(FORMATS)}; 'github' annotates the run and "
    "adds to the summary of its step.  [default: csv, and xlsx where openpyxl is installed]",
)
@click.option(
    "--repro",
    "repro",
    callback=absolute_path,
    metavar="DIR",
    help="For each failure write a script and its tensors that show it without this tool.  "
    "[default: not written]",
)
@click.option(
    "--resume",
    callback=input_path,
    metavar="FILE",
    help="Take over what the journal (.jsonl) of an interrupted check has, and do the rest.  "
    "[default: check all]",
)
@baseline_option("an earlier json report of the same program (--format json)")
@click.option(
    "--fail-on",
    type=click.Choice(FAIL_ON),
    default="fail",
    show_default=True,
    help="The mildest verdict that ends with exit code 1.",
)
@click.option(
    "--self-test",
    "grade",
    is_flag=True,
    help="Check no dump but the precision standards: which kernel faults each one finds, and "
    "where it alarms at a legal way to compute.",
)
@allow_skip_option
@json_option
@message_options
@click.pass_context
def opcheck(
    ctx: click.Context,
    /,
    path: Path | None,
    table: Path | None,
    output: Path,
    ids: tuple[str, ...],
    names: tuple[str, ...],
    metrics: tuple[str, ...],
    device: int,
    rerun: bool,
    rerun_with: str | None,
    standard: str | None,
    soc: str | None,
    golden: tuple[str, ...],
    jobs: int | None,
    formats: tuple[str, ...],
    repro: Path | None,
    resume: Path | None,
    baseline: Path | None,
    fail_on: FailOn,
    grade: bool,
    allow_skip: bool,
    as_json: bool,
    log_level: str,
    **engine_settings: Any,
) -> None:
    """Check every operator of a dump against its golden operator, from its own dumped inputs.

    \b
    ait llm opcheck -i out/ait_dump -o report
    ait llm opcheck -i out/ait_dump/tensors/0_4242/0 -c operation_tensors_0.csv -opname linear
    ait llm opcheck -i out/ait_dump --format junit markdown --repro failures

    Exits with 0 if every operator was checked and passed, with 1 if one fails, with 3 if
    something could not be checked.
    """
    choice = take_engine(engine_settings)
    if grade:
        ctx.exit(self_test(as_json=as_json))
    if path is None:
        raise click.MissingParameter(ctx=ctx, param=_parameter(ctx, "path"))
    formats, summaries = split_summaries(formats or _default_formats(), FORMATS)
    if "xlsx" in formats:  # what cannot be is told before hours of work, not after
        import_optional("openpyxl", "--format xlsx", "xlsx")
    wanted = Wanted(operation_ids(ids), names)
    import_optional("torch", "computing golden operators")
    for name in golden:
        load_golden(name)
    earlier = None if baseline is None else OpcheckBaseline(baseline, fail_on)
    make_folder(output)
    stem = free_stem(output)
    journal = output / f"{stem}.jsonl"
    if resume is not None and not resume.is_file():
        raise UsageError(f"{resume}: no such file; --resume takes the .jsonl of an earlier check")
    backend: Backend | None = choose_backend(device) if rerun else None
    if rerun_with is not None:
        backend = function_backend(rerun_with)
    threads = 1 if backend is not None else jobs or os.cpu_count() or 1
    repros = None if repro is None else Repros(repro)
    with (
        shared_processors(threads),
        choice.open(jobs) as engine,
        keeping(journal, "--resume"),
        stop_on_signals() as stop,
        ProgressLine() as progress,
    ):
        report = check_dump(
            path,
            table=table,
            wanted=wanted,
            standard=standard,
            metrics=metrics,
            backend=backend,
            soc=soc,
            jobs=threads,
            engine=engine,
            plugins=golden,
            journal=journal,
            resume=resume,
            stop=stop,
            on_progress=lambda done, total: progress.count("checked", done, "operators", total),
            on_failure=repros,
        )
    build = Build(summaries, output, stem)
    files = [*write_reports(report, formats, output, stem), *build.files()]
    if report.partial:
        files.append(journal)
    else:
        with contextlib.suppress(OSError):  # its folder was taken away, and the file with it
            journal.unlink()
    lines = summary_lines(report, files)
    if repros is not None:
        lines += [f"  repro   python {script}" for script in sorted(repros.scripts)]
    following = ""
    if report.partial:
        following = f"the same command with --resume {journal}"
        lines.append(f"  next    {following}")
    code = report.exit_code(fail_on=fail_on, allow_skip=allow_skip)
    against = None if earlier is None else earlier.hold(report)
    if against is not None:
        code = exit_code(report, against, allow_skip=allow_skip)
        lines[1:1] = [printable(f"  {name:<8}{text}") for name, text in against.lines()]
        lines[0] = lines[0].replace(": ", f": {WORDS[code]} against the baseline, on its own ", 1)
    tell("\n".join(lines), code, as_json=as_json)
    if as_json:
        emit("opcheck", _machine(report, files, code, against))
    if summaries:
        wrong = {item.op_id.partition("@")[0] for item in report.items if item.reason}
        places = places_in(path, wrong, summaries)
        found = opcheck_summary(
            report, code, files, following, lines=places, kernel=_written(backend)
        )
        if against is not None:
            found = summary_against(found, against)
        build.publish(found, as_json=as_json)
    ctx.exit(tell_faults(report.faults) or code)


def _written(backend: Backend | None) -> SourceLine | None:
    """Where another implementation is written."""
    return source_of(backend.function) if isinstance(backend, FunctionBackend) else None


def _parameter(ctx: click.Context, name: str) -> click.Parameter:
    return next(param for param in ctx.command.params if param.name == name)


def _default_formats() -> tuple[str, ...]:
    return ("csv", "xlsx") if importlib.util.find_spec("openpyxl") else ("csv",)


def _machine(
    report: OpcheckReport, files: list[Path], code: int, against: Against | None
) -> dict[str, object]:
    found = as_json(report)
    del found["outputs"]
    if against is not None:
        found["baseline"] = against.as_dict()
    return {**found, "exit_code": code, "reports": [str(path) for path in files]}
