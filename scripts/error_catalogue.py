#!/usr/bin/env python3
"""Write docs/errors.md: every message of every error, read from the source, with its exit code.

Usage: scripts/error_catalogue.py [--check]

With --check nothing is written; the exit code is 1 if the page is not what it should be.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from error_templates import AREAS, ErrorTemplate, error_classes, error_templates
from source_index import Index

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"
BEGIN, END = "<!-- begin catalogue -->", "<!-- end catalogue -->"

MEANINGS = {
    "CommandFailedError": "A command that an agent asked for gave no result.",
    "AitError": "what is asked for is not offered",
    "DumpPathError": "ptdbg: the path of a dump cannot be used",
    "FieldTypeError": "hostatb: a field of a parameter has a value of another type or range",
    "FormatError": "a file does not hold what its format promises",
    "IncompleteError": "something that was asked for could not be captured or compared",
    "MissingDependencyError": "a package or library is needed and absent",
    "NativeStatusError": "hostatb: a call into the runtime failed",
    "NotComputedError": "replay: an operator was not computed; it is told as SKIPPED",
    "OperationError": "an operation was given parameters or tensors that it cannot take",
    "ProbeError": "the probe cannot be used with this program or this ATB",
    "ReaderError": "the process that reads a file ended before it was done",
    "RefusedError": "a golden operator does not take these inputs; told as the reason of a verdict",
    "StorageError": "a store that a URL names does not answer, or refuses",
    "SwitchError": "ptdbg: an argument cannot be used",
    "UnfinishedError": "a file ends early: the run that wrote it was cut off",
    "UnknownFieldError": "hostatb: a parameter has no field of that name",
    "UnknownNameError": "a list of names, such as that of metrics, has no such entry",
    "UnverifiableError": "what is known does not determine the result; told as SKIPPED",
    "UsageError": "an option or argument has a value that cannot be used",
}
"""What each class says; one without a line here is an error of this script."""


class CatalogueError(Exception):
    """The source has an error that the page cannot describe."""


def catalogue(templates: Sequence[ErrorTemplate], codes: Mapping[str, int]) -> str:
    """The generated part of the page.

    Args:
        templates: of :func:`error_templates`.
        codes: of :func:`error_classes`.

    Raises:
        CatalogueError: a class has no message or no meaning, or a package no title.
    """
    told = {each.kind for each in templates}
    if silent := sorted(set(codes) - told):
        raise CatalogueError(f"no message is found of {', '.join(silent)}; is the class used?")
    if unknown := sorted(set(codes) - set(MEANINGS)):
        raise CatalogueError(f"give {', '.join(unknown)} a line in MEANINGS of {__file__}")
    if homeless := sorted({each.module for each in templates if each.area == "Other parts"}):
        raise CatalogueError(f"give the package of {homeless[0]} a title in AREAS")
    return "\n".join(_lines(templates, codes))


def _lines(templates: Sequence[ErrorTemplate], codes: Mapping[str, int]) -> Iterator[str]:
    yield "| class | exit code | meaning |"
    yield "| --- | --- | --- |"
    for name, code in codes.items():
        yield f"| `{name}` | {code} | {MEANINGS[name]} |"
    for area in dict.fromkeys(AREAS.values()):
        found = [each for each in templates if each.area == area]
        if not found:
            continue
        yield f"\n## {area}\n"
        errors = [each for each in found if each.exit_code is not None]
        if errors:
            yield "| exit code | class | message |"
            yield "| --- | --- | --- |"
        for each in errors:
            yield f"| {each.exit_code} | `{each.kind}` | {_code(each)} |"
        clauses = [each for each in found if each.exit_code is None]
        if clauses:
            yield "\nClauses that such messages quote, and errors of calls from Python:\n"
        for each in clauses:
            yield f"- {_code(each)}"


def _code(each: ErrorTemplate) -> str:
    """The message as code in a table, with single braces as the program prints them."""
    text = " ".join(each.text.replace("{{", "{").replace("}}", "}").split()).replace("|", "\\|")
    fence = "``" if "`" in text else "`"
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def page(current: str, generated: str) -> str:
    """The page with its generated part replaced."""
    head, rest = current.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n\n{generated}\n\n{END}{tail}"


def main(words: Sequence[str]) -> int:
    """Write the page, or say whether it is up to date."""
    current = PAGE.read_text(encoding="utf-8")
    index = Index()
    wanted = page(current, catalogue(error_templates(index), error_classes(index)))
    if "--check" not in words:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    if current != wanted:
        print(f"{PAGE} is not up to date; run scripts/error_catalogue.py")
    return int(current != wanted)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
