"""``ait llm compare``: two dumps in, the guilty operator out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from ait_llm.cli.api_options import api_options, paths_of, split_formats, take_request
from ait_llm.cli.compare_result import Handover
from ait_llm.cli.compare_text import as_dict, given_words, started, what_next
from ait_llm.cli.completed import CompletedWords
from ait_llm.cli.console import is_coloured, say, tell
from ait_llm.cli.engine_options import EngineChoice, engine_options, take_engine
from ait_llm.cli.fault import keeping, tell_faults
from ait_llm.cli.fitted import columns_of
from ait_llm.cli.machine import emit
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
from ait_llm.cli.progress import ProgressLine
from ait_llm.cli.summaries import baseline_option, split_summaries
from ait_llm.compare import stop_on_signals
from ait_llm.core.comparison import Comparison, Report
from ait_llm.core.optional import import_optional
from ait_llm.errors import AitError
from ait_llm.language import current, translate
from ait_llm.metrics.registry import metrics as known_metrics
from ait_llm.naming import told
from ait_llm.report import (
    JsonlWriter,
    free_stamp,
    report_path,
    terminal_lines,
)
from ait_llm.report.baseline.of_compare import Baseline
from ait_llm.report.files import make_folder
from ait_llm.report.terminal import WIDTH

FORMATS = (
    *("csv", "xlsx", "jsonl", "html", "junit", "parquet", "onnx"),
    *("markdown", "github", "sarif"),
)
# What they need, and the extra that installs it.
_PACKAGES = {
    "xlsx": ("openpyxl", "xlsx"),
    "parquet": ("pyarrow", "arrow"),
    "onnx": ("onnx", "onnx"),
}


def _unique(
    _ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for text in value for name in comma_list(text)))


def _steps(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    return None if value is None else ",".join(comma_list(value))


@click.command(cls=WordsCommand)
@click.option(
    "-gp",
    "--golden-path",
    callback=input_path,
    metavar="PATH",
    help="The trusted side: a tensor file, the output directory of a dump, or a folder in it.  "
    "[required, or -i]",
)
@click.option(
    "-mp",
    "--my-path",
    callback=input_path,
    metavar="PATH",
    help="The side under suspicion, of any of the same kinds.  [required, or -i]",
)
@click.option(
    "-mf",
    "--op-mapping-file",
    callback=input_path,
    metavar="PATH",
    help="Which tensors answer which: lines of patterns such as those of --save-mapping, or a "
    "table of operator types; a file, or a folder with op_mapping_file.json. What it does not "
    "name is matched as without it.  [default: none]",
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
@message_options
@click.option(
    "--format",
    "formats",
    cls=ManyOption,
    type=CompletedWords(lambda: FORMATS),
    callback=_unique,
    metavar="NAME ...",
    help=f"Reports to write, one or more of {', '.join(FORMATS)}. 'html' is one page to look at "
    "offline; 'onnx' is my topology with the results, for Netron; 'github' annotates the run and "
    "adds to the summary of its step.  [default: csv; xlsx too at API level]",
)
@click.option(
    "--metrics",
    cls=ManyOption,
    type=CompletedWords(known_metrics.names),
    callback=_unique,
    metavar="NAME ...",
    help="Only these metrics, such as cosine_similarity max_absolute_error.  [default: all]",
)
@click.option(
    "-alg",
    "--custom-algorithms",
    "custom",
    cls=ManyOption,
    metavar="FILE.py:FUNCTION ...",
    help="Your own metrics: functions of golden and mine that return a value and a message.  "
    "[default: none]",
)
@click.option(
    "--tolerance",
    metavar="LIMIT",
    help="Largest relative Euclidean distance that passes: 1e-3, or by type fp16=1e-3,bf16=2e-2.  "
    "[default: by type]",
)
@click.option(
    "--steps",
    cls=ListOption,
    callback=_steps,
    metavar="GOLDEN:MINE,...",
    help="Which forward pass of mine answers which golden one: 0:1,1:2.  [default: found out]",
)
@click.option(
    "--by-value",
    is_flag=True,
    help="As a last resort, match what nothing else matched by fingerprints of its values.",
)
@click.option(
    "--save-mapping",
    callback=absolute_path,
    metavar="FILE",
    help="Write which tensor was matched with which as lines of patterns, one for all layers, to "
    "be edited and given to -mf.  [default: not written]",
)
@click.option(
    "--deep",
    is_flag=True,
    help="Compute every operation once more from its own inputs, also where nothing failed.",
)
@click.option(
    "--ledger/--no-ledger",
    "ledger",
    default=None,
    help="For each operator of an ATB dump the error that it introduces and the one that it "
    "inherits, as a table and in the HTML report.  [default: on for up to 500 operators with "
    "64 MiB of inputs]",
)
@click.option(
    "--weights-from",
    cls=ManyOption,
    metavar="SIDE=PATH ...",
    help="A checkpoint that stands in for weights that a capture of modules lacks, or that its "
    "engine packed: golden=PATH, mine=PATH; a file, folder or index.  [default: none]",
)
@click.option("-w", "--weight", "weights", is_flag=True, help="Compare weights.")
@click.option(
    "-st",
    "--stats",
    is_flag=True,
    help="Accepted for the manual's sake: dumps that hold statistics are recognised.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1),
    help="Threads, or worker processes.  [default: one for each processor]",
)
@click.option(
    "--resume",
    callback=input_path,
    metavar="FILE",
    help="Take over what this jsonl report of an interrupted comparison has, and do the rest.  "
    "[default: compare all]",
)
@baseline_option("an earlier jsonl report of the same program (--format jsonl)")
@engine_options
@api_options
@allow_skip_option
@click.option(
    "--strict",
    is_flag=True,
    help="Exit with 3 also for tensors that only one of the two programs makes.",
)
@json_option
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    golden_path: Path | None,
    my_path: Path | None,
    output: Path,
    formats: tuple[str, ...],
    metrics: tuple[str, ...],
    save_mapping: Path | None,
    baseline: Path | None,
    allow_skip: bool,
    strict: bool,
    as_json: bool,
    log_level: str,
    stats: bool,
    **settings: Any,  # those whose names and types are the comparison's own
) -> None:
    """Compare a run with a trusted one and name the operator where the error starts.

    \b
    ait llm compare -gp golden/ait_dump -mp out/ait_dump -o report --format csv html
    ait llm compare -gp expected.pth -mp outtensor0.bin

    Tensors are matched without a table: ATB with PyTorch, ATB with ATB, PyTorch with PyTorch,
    floating-point with quantised. Exits with 0 if everything was compared and passed, with 1 if
    a tensor fails, with 3 if something could not be compared.
    """
    engine = take_engine(settings)
    request = take_request(settings)
    golden, mine, api_level = paths_of(request, golden_path, my_path)
    tables: tuple[str, ...] = ()
    formats, summaries = split_summaries(formats, FORMATS)
    if api_level and (formats or not summaries):
        tables, formats = split_formats(formats)
    if api_level:
        from ait_llm.cli.api_compare import compare_api, refuse_baseline  # other dumps do without

        judge_calls = partial(
            compare_api,
            request,
            golden,
            mine,
            output,
            tables,
            jobs=settings["jobs"],
            engine=engine,
            custom=settings["custom"],
            tolerance=settings["tolerance"],
            as_json=as_json,
            allow_skip=allow_skip,
            strict=strict,
        )
    earlier = None if baseline is None else Baseline(baseline)
    if api_level and not formats and not summaries and earlier is None:
        ctx.exit(judge_calls())
    if earlier is not None and api_level:
        refuse_baseline(request, golden, mine)
    formats = formats or (() if summaries or api_level else ("csv",))
    for name in formats:  # what cannot be is told before hours of work, not after
        if name in _PACKAGES:
            package, extra = _PACKAGES[name]
            import_optional(package, f"--format {name}", extra)
    make_folder(output)
    stamp = free_stamp(output)
    journal = report_path(output, stamp, "jsonl")
    if "onnx" in formats:
        from ait_llm.compare import onnx_report  # noqa: F401  registers its format
    if save_mapping is not None:
        from ait_llm.match.saved_mapping import write_mapping

        settings["on_matches"] = partial(write_mapping, save_mapping)
    if api_level:  # a file stands for its folder
        golden, mine = (path.parent if path.is_file() else path for path in (golden, mine))
    report = _compare(
        journal,
        golden,
        mine,
        engine,
        earlier,
        keeps="jsonl" in formats,
        dataflow="html" in formats,
        metrics=metrics or None,
        **settings,
    )
    if report.partial:
        formats = tuple(dict.fromkeys((*formats, "jsonl")))  # --resume goes on from there
    outer = "" if ctx.parent is None else ctx.parent.command.name
    handover = Handover(
        formats,
        summaries,
        output,
        stamp,
        save_mapping,
        earlier,
        allow_skip,
        strict,
        as_json,
        "check" if outer == "check" else "compare",  # which ends with a comparison
    )
    if api_level and not report.partial and not report.faults:
        code = judge_calls(report=report, handover=handover)
        handover.publish(code)
        ctx.exit(_told(handover.refused, code))
    files = handover.write(report)
    next_command = what_next(report, given_words(ctx), journal, formats)
    own = report.exit_code(allow_skip=allow_skip, strict=strict)
    code = handover.code(report, own)
    code = code or (handover.refused[0].exit_code if handover.refused else 0)
    lines = terminal_lines(
        report,
        files,
        next_command,
        colour=is_coloured(err=as_json),
        width=_width(as_json),
        strict=strict,
        against=handover.against,
        code=code,
    )
    tell("\n".join(lines), code, as_json=as_json)
    if as_json:
        result = as_dict(report, files, next_command, code) | handover.as_dict()
        emit("compare-result", result)
    handover.publish(code, next_command)
    ctx.exit(tell_faults(report.faults) or _told(handover.refused, code))


def _told(refused: Sequence[AitError], code: int) -> int:
    """Say which reports could not be written, and return what the command ends with."""
    for refusal in refused:
        click.echo(told(translate(f"ait: error: {refusal}")), err=True)
    return code or (refused[0].exit_code if refused else 0)


def _compare(
    journal: Path,
    golden: Path,
    mine: Path,
    choice: EngineChoice,
    earlier: Baseline | None,
    *,
    keeps: bool,
    **settings: Any,
) -> Report:
    """Compare while a journal grows that a killed comparison can be resumed from.

    Ctrl-C and SIGTERM end it early with a partial report. The journal of a whole report goes,
    unless it ``keeps`` it until the report is in its place.
    """
    from ait_llm.compare import compare as compare_paths

    writer: JsonlWriter | None = None
    written = 0

    def start(report: Report) -> None:
        nonlocal writer
        if earlier is not None:
            earlier.check(report)
        writer = JsonlWriter(journal, report)
        say(started(report))

    def add(index: int, item: Comparison) -> None:
        nonlocal written
        assert writer is not None  # the comparison starts before its first result
        writer.add(index, item)
        written += 1

    with (
        choice.open(settings["jobs"]) as engine,
        keeping(journal, "--resume"),
        stop_on_signals() as stop,
        ProgressLine() as progress,
    ):
        progress.begin("reading and matching both sides")
        is_whole = False
        try:
            report = compare_paths(
                golden,
                mine,
                engine=engine,
                stop=stop,
                on_start=progress.before(start),
                on_comparison=add,
                on_progress=progress,
                **settings,
            )
            is_whole = not report.partial
            return report
        finally:
            if writer is not None:
                if written and (keeps or not is_whole):
                    writer.close()
                else:  # nothing to resume from, or no need to
                    writer.discard()


def _width(as_json: bool) -> int:
    """Columns for the result; those of a translation are made when it is translated."""
    stream = sys.stderr if as_json else sys.stdout
    return columns_of(stream, WIDTH) if current() == "en" else WIDTH
