"""``ait llm repro``: one operator of a dump as a zip that shows its error anywhere."""

from __future__ import annotations

from pathlib import Path

import click

from ait_llm.capsule import Capsule, make_capsule
from ait_llm.cli.console import tell
from ait_llm.cli.machine import emit
from ait_llm.cli.params import (
    OutputCommand,
    absolute_path,
    input_path,
    json_option,
    message_options,
    parse_size,
)


@click.command(cls=OutputCommand)
@click.option(
    "-d",
    "--dump",
    "path",
    required=True,
    callback=input_path,
    metavar="DIR",
    help="A dump with values: of the acceleration library, of operators, modules or functions of "
    "PyTorch, or of nodes of FX graphs.",
)
@click.option(
    "--op",
    required=True,
    metavar="ID",
    help="The operator: 2_1_3, root.mlp.aten.mm.default, root.norm, the name of a node, or "
    "Functional.linear.3.forward.",
)
@click.option(
    "--step",
    type=click.IntRange(0),
    metavar="N",
    help="Its execution count.  [default: the first that fails]",
)
@click.option(
    "--device", type=int, metavar="D", help="Device or rank.  [default: the first that fails]"
)
@click.option(
    "--tensor",
    "output",
    metavar="NAME",
    help="Which output: outtensor1, or intensor2 of an input that the operator overwrites.  "
    "[default: the first that fails]",
)
@click.option(
    "-o",
    "--output",
    "out",
    required=True,
    callback=absolute_path,
    metavar="FILE.zip",
    help="The capsule.",
)
@click.option(
    "--shrink",
    "smaller",
    is_flag=True,
    help="Make shapes and values as small as they can be while the error stays the same.",
)
@click.option(
    "--max-size",
    default="4G",
    show_default=True,
    callback=parse_size,
    metavar="SIZE",
    help="Largest size of the operator's tensors.",
)
@json_option
@message_options
@click.pass_context
def repro(
    ctx: click.Context,
    /,
    path: Path,
    op: str,
    step: int | None,
    device: int | None,
    output: str | None,
    out: Path,
    smaller: bool,
    max_size: int,
    as_json: bool,
    log_level: str,
) -> None:
    """Put one operator of a dump into a zip that shows its error with torch and NumPy alone.

    \b
    ait llm repro --dump out --op 2_1_3 -o case.zip
    ait llm repro --dump out --op 2_1_3 --step 1 -o case.zip --shrink
    ait llm repro --dump out --op root.layers.1.mlp.aten.mm.default -o case.zip
    unzip case.zip -d case && python case/run.py --kernel my_kernel.py:function

    Without --step, --device and --tensor it is the first execution and output that fails, else the
    first. Exits with 0 if the capsule was written, whether its output fails or not.
    """
    made = make_capsule(
        path,
        op,
        out,
        step=step,
        device=device,
        output=output,
        smaller=smaller,
        max_bytes=max_size,
    )
    tell("\n".join(_lines(made)), 0, as_json=as_json)
    if as_json:
        emit("repro", _machine(made))
    ctx.exit(0)


def _lines(made: Capsule) -> list[str]:
    lines = [
        f"ait llm repro: {'PASS' if made.passed else 'FAIL'}: {made.title}",
        f"  {made.text}",
    ]
    if made.shrunk is not None:
        lines.append(f"  made smaller: {made.shrunk['text']}")
        if made.passed:
            lines.append("  it shows no error that could be kept, so it is as dumped")
    return [
        *lines,
        f"  capsule {made.path} ({made.path.stat().st_size:,} bytes)",
        "  next    unzip it, then python run.py, or python run.py --kernel my_kernel.py:function",
    ]


def _machine(made: Capsule) -> dict[str, object]:
    return {
        "capsule": str(made.path),
        "title": made.title,
        "verdict": "PASS" if made.passed else "FAIL",
        "reason": made.text,
        "bytes": made.byte_count,
        "shrunk": made.shrunk,
    }
