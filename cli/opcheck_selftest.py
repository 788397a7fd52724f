"""``ait llm opcheck --self-test``: what each precision standard finds, and where it alarms."""

from __future__ import annotations

import click

from ait_llm.cli.machine import emit
from ait_llm.cli.progress import ProgressLine
from ait_llm.core.optional import import_optional


def self_test(*, as_json: bool) -> int:
    """Grade every standard and print the tables.

    What operators should compute is held to recorded numbers of the vendor's own generator first.

    Returns:
        the exit code: 0 if ``contract`` finds the known faults without a false alarm and golden
        operators compute the recorded numbers, else 1.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    import_optional("torch", "computing golden operators")
    from ait_llm.opcheck.selftest.recorded import load, wrong_definitions
    from ait_llm.opcheck.selftest.runner import grade
    from ait_llm.opcheck.selftest.table import as_json as table_as_json
    from ait_llm.opcheck.selftest.table import is_good_enough, page

    wrong = wrong_definitions()
    with ProgressLine() as line:
        trials = grade(
            progress=lambda done, total: line.count("graded with", done, "kernels", total)
        )
    if as_json:
        definitions = {"recorded_cases": len(load()), "wrong_definitions": wrong}
        emit("opcheck-self-test", table_as_json(trials) | definitions)
    else:
        click.echo(page(trials))
        for line_of_case in wrong:
            click.echo(f"- {line_of_case}")
    return 0 if is_good_enough(trials) and not wrong else 1
