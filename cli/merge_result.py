"""``ait llm merge-result``: communication of all ranks side by side."""

from __future__ import annotations

import time
from pathlib import Path

import click

from ait_llm.cli.console import tell
from ait_llm.cli.machine import emit
from ait_llm.cli.numbers import counted
from ait_llm.cli.params import (
    OutputCommand,
    allow_skip_option,
    input_path,
    json_option,
    message_options,
    output_path,
)
from ait_llm.compare.api.merge import merge_results, read_merge_settings
from ait_llm.report.writing import STAMP_FORMAT


@click.command(cls=OutputCommand)
@click.option(
    "-i",
    "--input-dir",
    "--input_dir",
    "folder",
    required=True,
    callback=input_path,
    metavar="DIR",
    help="Folder with compare_result_rank{N}_{time}.csv or .xlsx; the newest of each rank counts.",
)
@click.option(
    "-o",
    "--output-dir",
    "--output_dir",
    "output",
    required=True,
    callback=output_path,
    metavar="DIR",
    help="Folder for multi_ranks_compare_merge_{time}.xlsx.",
)
@click.option(
    "-config",
    "--config-path",
    "--config_path",
    "config",
    required=True,
    callback=input_path,
    metavar="FILE.yaml",
    help="Which calls (api) and which columns (compare_index) to collect.",
)
@message_options
@allow_skip_option
@json_option
@click.pass_context
def merge_result(
    ctx: click.Context,
    /,
    folder: Path,
    output: Path,
    config: Path,
    allow_skip: bool,
    as_json: bool,
    log_level: str,
) -> None:
    """Collect rows of some calls, communication above all, from the tables of all ranks.

    \b
    ait llm merge-result -i report -o merged -config config.yaml

    Exits with 3 if a call of the configuration is in no table.
    """
    settings = read_merge_settings(config)
    merged = merge_results(folder, output, settings, time.strftime(STAMP_FORMAT))
    ranks = ", ".join(map(str, merged.ranks))
    word = "INCOMPLETE" if merged.problems else "complete"
    lines = [f"ait llm merge-result: {word}: {counted(merged.rows, 'row')} of ranks {ranks}"]
    lines += [f"  missing {problem}" for problem in merged.problems]
    lines.append(f"  table   {merged.path}")
    code = 3 if merged.problems and not allow_skip else 0
    tell("\n".join(lines), code, as_json=as_json)
    if as_json:
        result = {
            "exit_code": code,
            "ranks": list(merged.ranks),
            "rows": merged.rows,
            "problems": list(merged.problems),
            "file": str(merged.path),
        }
        emit("merge-result", result)
    ctx.exit(code)
