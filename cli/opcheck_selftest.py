"""``ait llm opcheck --self-test``: what each precision standard finds, and where it alarms."""

from __future__ import annotations

import json

import click

from ait_llm.cli.progress import ProgressLine
from ait_llm.core.optional import import_optional


def self_test(*, as_json: bool) -> int:
    """Grade every standard and print the tables.

    Returns:
        the exit code: 0 if ``contract`` finds the known faults without a false alarm, else 1.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    import_optional("torch", "computing golden operators")
    from ait_llm.opcheck.selftest.runner import grade
    from ait_llm.opcheck.selftest.table import as_json as table_as_json
    from ait_llm.opcheck.selftest.table import is_good_enough, page

    with ProgressLine() as line:
        trials = grade(
            progress=lambda done, total: line.count("graded with", done, "kernels", total)
        )
    if as_json:
        click.echo(json.dumps(table_as_json(trials), indent=2))
    else:
        click.echo(page(trials))
    return 0 if is_good_enough(trials) else 1
