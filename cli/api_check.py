"""``ait llm api-check``: every recorded call run again and judged against a CPU run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ait_llm.apicheck import (
    ApiResult,
    CheckOptions,
    Outcome,
    check_apis,
    compare_precision,
    standards,
)
from ait_llm.apicheck.config import read_check_file
from ait_llm.apicheck.summary import api_check_summary
from ait_llm.apicheck.tables import stamp_of
from ait_llm.cli.console import WORDS, tell
from ait_llm.cli.fault import tell_faults
from ait_llm.cli.machine import emit
from ait_llm.cli.params import (
    ManyOption,
    OutputCommand,
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
from ait_llm.cli.summaries import Build, summary_option
from ait_llm.compare import stop_on_signals
from ait_llm.core.optional import import_optional
from ait_llm.report.summary import wants_places
from ait_llm.report.wording import counted, printable
from ait_llm.storage import local_path

_LISTED = 10  # of each kind of result


def _paths(_ctx: click.Context, _param: click.Parameter, value: Any) -> tuple[Path, ...]:
    return tuple(local_path(text).expanduser().absolute() for text in value or ())


def _devices(_ctx: click.Context, _param: click.Parameter, value: Any) -> str:
    return ",".join(name for text in value or () for name in comma_list(text))


@click.command(cls=WordsCommand)
@click.option(
    "-api_info",
    "--api-info",
    "--api_info_file",
    "paths",
    cls=ManyOption,
    callback=_paths,
    required=True,
    metavar="FILE ...",
    help="A dump.json of level L1 or mix, or a folder with the steps and ranks of a capture.",
)
@click.option(
    "-o",
    "--output",
    "--out_path",
    default="./",
    show_default=True,
    callback=output_path,
    metavar="DIR",
    help="Directory for the tables.",
)
@click.option(
    "-d",
    "--device",
    cls=ManyOption,
    callback=_devices,
    metavar="NAME ...",
    help="Device under test: cpu, cuda:0, npu:0; numbers mean the best accelerator, several share "
    "the work.  [default: the best accelerator, else cpu]",
)
@click.option(
    "--standard",
    type=click.Choice(sorted(standards)),
    default="contract",
    show_default=True,
    help="How outputs of floats are judged; integers must be equal.",
)
@click.option(
    "--jobs",
    "-n",
    "--num_splits",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Calls that run at a time.",
)
@click.option(
    "--golden-float64",
    is_flag=True,
    help="Golden in float64 also for inputs of 16 bits.  [default: float32 for them]",
)
@click.option(
    "-f",
    "--filter-api",
    "--filter_api",
    "once",
    is_flag=True,
    help="Of calls that differ in the values of their tensors only, check the first.",
)
@click.option(
    "-save_error_data",
    "--save-error-data",
    "save_error_data",
    is_flag=True,
    help="Keep inputs and outputs of calls that do not pass, in ut_error_dataTIME/.",
)
@click.option(
    "-csv_path",
    "--resume",
    "--result_csv_path",
    "resume",
    callback=absolute_path,
    metavar="FILE",
    help="Continue the interrupted check whose accuracy_checking_result_TIME.csv this is.  "
    "[default: check all]",
)
@click.option(
    "-config",
    "--config",
    "--config_path",
    "config",
    callback=input_path,
    metavar="config.json",
    help="White and black list, folder of error data: msprobe's section acc_check or run_ut.  "
    "[default: check all functions]",
)
@click.option(
    "--api-list",
    "api_list",
    callback=input_path,
    metavar="FILE.yaml",
    help="Functions of your own that may be called, as captures take them.  [default: none]",
)
@click.option(
    "-j",
    "--jit-compile",
    "--jit_compile",
    "jit_compile",
    is_flag=True,
    help="NPU: compile operators for each shape, as the captured run did.",
)
@summary_option
@allow_skip_option
@json_option
@message_options
@click.pass_context
def api_check(
    ctx: click.Context,
    /,
    paths: tuple[Path, ...],
    output: Path,
    device: str,
    standard: str,
    jobs: int,
    golden_float64: bool,
    once: bool,
    save_error_data: bool,
    resume: Path | None,
    config: Path | None,
    api_list: Path | None,
    jit_compile: bool,
    formats: tuple[str, ...],
    allow_skip: bool,
    as_json: bool,
    log_level: str,
) -> None:
    """Run every recorded call of an API-level dump again and judge it against a CPU run.

    \b
    ait llm api-check -api_info dump/step0/rank0/dump.json -o report
    ait llm api-check -api_info dump -o report --device npu:0 -save_error_data
    ait llm api-check -api_info dump -csv_path report/accuracy_checking_result_20260101000000.csv

    Exits with 0 if no call errs, with 1 if one does, with 3 if something could not be checked.
    """
    import_optional("torch", "running functions again")
    given = read_check_file(config)
    options = CheckOptions(
        device=device,
        standard=standard,
        jobs=jobs,
        float64=golden_float64,
        selection=given.selection,
        once=once,
        api_list=api_list,
        resume=resume,
        save_error_data=save_error_data,
        error_data=given.error_data,
        jit_compile=jit_compile,
    )
    with shared_processors(jobs), stop_on_signals() as stop, ProgressLine() as progress:
        outcome = check_apis(
            paths,
            output,
            options,
            stop=stop,
            on_progress=lambda done, total: progress.count("checked", done, "calls", total),
        )
    code = outcome.exit_code(allow_skip=allow_skip)
    build = _build(outcome, formats, output)
    lines = [*_lines(outcome, code), *(f"  summary {path}" for path in build.files())]
    tell("\n".join(lines), code, as_json=as_json)
    if as_json:
        emit("api-check", _as_dict(outcome, code, build.files()))
    summary = api_check_summary(outcome, code, places=wants_places(formats))
    build.publish(summary, as_json=as_json)
    ctx.exit(tell_faults(outcome.faults) or code)


def _build(outcome: Outcome, formats: tuple[str, ...], output: Path) -> Build:
    """Files of the summary lie beside the tables, and have their time."""
    tables = [path for each in outcome.checked for path in each.files[:1]]
    if not tables:
        return Build(formats, output, "accuracy_checking_summary")
    return Build(formats, tables[0].parent, f"accuracy_checking_summary_{stamp_of(tables[0])}")


def _lines(outcome: Outcome, code: int) -> list[str]:
    results = list(outcome.results)
    words = ", ".join(f"{count} {status}" for status, count in outcome.counts.most_common())
    lines = [
        f"ait llm api-check: {WORDS[code]}: {counted(len(results), 'call')} on {outcome.device} "
        f"(standard {outcome.standard}): {words or 'none'}"
    ]
    for status in ("error", "warning"):
        found = [each for each in results if each.worst == status]
        for each in found[:_LISTED]:
            lines.append(printable(f"  {status:<7} {each.name}: {each.message}"))
        if len(found) > _LISTED:
            lines.append(f"  {status:<7} and {len(found) - _LISTED} more, see the tables")
    left_out = [each for each in results if each.worst == "SKIP" and not each.is_missing]
    lines += _by_reason("missing ", [each for each in results if each.is_missing])
    lines += _by_reason("", left_out)
    for file in outcome.checked:
        lines += [printable(f"  missing {file.path}: {problem}") for problem in file.problems]
        if file.filtered:
            lines.append(f"  {counted(file.filtered, 'repeated call')} left out")
        lines += [f"  table   {path}" for path in file.files]
    if outcome.error_data is not None:
        lines.append(f"  tensors {outcome.error_data}")
    if outcome.stopped:
        first = outcome.checked[0].files[0]
        lines.append(f"  interrupted; next: the same command with -csv_path {first}")
    return lines


def _by_reason(word: str, results: Sequence[ApiResult]) -> list[str]:
    """One line for each reason: ``missing Tensor.to.0 and 2 more: ...``."""
    names: dict[str, list[str]] = {}
    for each in results:
        names.setdefault(each.message, []).append(each.name)
    lines = []
    for message, found in sorted(names.items(), key=lambda item: -len(item[1]))[:_LISTED]:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        lines.append(printable(f"  {word}{found[0]}{more}: {message}"))
    if len(names) > _LISTED:
        lines.append(f"  {word}and {len(names) - _LISTED} other reasons, see the tables")
    return lines


def _as_dict(outcome: Outcome, code: int, more: Sequence[Path]) -> dict[str, Any]:
    return {
        "exit_code": code,
        "device": outcome.device,
        "standard": outcome.standard,
        "counts": dict(outcome.counts),
        "errors": [each.name for each in outcome.results if each.worst == "error"],
        "missing": {each.name: each.message for each in outcome.results if each.is_missing},
        "problems": [problem for each in outcome.checked for problem in each.problems],
        "files": [str(path) for each in outcome.checked for path in (*each.files, *more)],
        "error_data": None if outcome.error_data is None else str(outcome.error_data),
        "stopped": outcome.stopped,
    }


@click.command(cls=OutputCommand)
@click.option(
    "-npu",
    "--npu",
    "--npu_csv_path",
    "npu",
    required=True,
    callback=input_path,
    metavar="FILE",
    help="The table accuracy_checking_details_TIME.csv of the device under test.",
)
@click.option(
    "-gpu",
    "--gpu",
    "--gpu_csv_path",
    "gpu",
    required=True,
    callback=input_path,
    metavar="FILE",
    help="The same of the device that is trusted.",
)
@click.option(
    "-o",
    "--output",
    "--out_path",
    default="./",
    show_default=True,
    callback=output_path,
    metavar="DIR",
    help="Directory for the tables.",
)
@allow_skip_option
@json_option
@message_options
@click.pass_context
def api_precision_compare(
    ctx: click.Context,
    /,
    npu: Path,
    gpu: Path,
    output: Path,
    allow_skip: bool,
    as_json: bool,
    log_level: str,
) -> None:
    """Compare the details tables of ait llm api-check of two devices by ratios of their errors.

    \b
    ait llm api-precision-compare -npu npu/details.csv -gpu gpu/details.csv -o report

    Exits with 0 if no output errs, with 1 if one does, with 3 if one could not be compared.
    """
    outcome = compare_precision(npu, gpu, output)
    code = outcome.exit_code(allow_skip=allow_skip)
    counts = Counter(row.status for row in outcome.rows)
    words = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    lines = [
        f"ait llm api-precision-compare: {WORDS[code]}: "
        f"{counted(len(outcome.rows), 'output')}: {words or 'none'}"
    ]
    for status in ("error", "SKIP"):
        found = [row for row in outcome.rows if row.status == status]
        for row in found[:_LISTED]:
            lines.append(printable(f"  {status:<7} {row.name}: {row.message}"))
        if len(found) > _LISTED:
            lines.append(f"  {status:<7} and {len(found) - _LISTED} more, see the tables")
    lines += [f"  table   {path}" for path in outcome.files]
    tell("\n".join(lines), code, as_json=as_json)
    if as_json:
        result = {
            "exit_code": code,
            "counts": dict(counts),
            "errors": [row.name for row in outcome.rows if row.status == "error"],
            "files": [str(path) for path in outcome.files],
        }
        emit("api-precision-compare", result)
    ctx.exit(code)
