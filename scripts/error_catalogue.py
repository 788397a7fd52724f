#!/usr/bin/env python3
"""Write docs/errors.md: every message of every error, read from the source, with its codes.

Usage: scripts/error_catalogue.py [--check]

Codes of errors are kept in ait_llm/language/error_codes.json, which is written, too. With --check
nothing is written; the exit code is 1 if one of both is not what it should be.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from error_codes import Codes
from error_templates import AREAS, ErrorTemplate, error_classes, error_templates
from source_index import Index

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "errors.md"
CODES = ROOT / "ait_llm" / "language" / "error_codes.json"
BEGIN, END = "<!-- begin catalogue -->", "<!-- end catalogue -->"
BEGIN_USAGE, END_USAGE = "<!-- begin usage -->", "<!-- end usage -->"

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


WRONG_USAGE = (
    "there is no option {name}; did you mean {near}?",
    "there is no option {name}; see {command} --help",
    "the option {name} is missing; see {command} --help",
    "the argument {name} is missing; see {command} --help",
    "the value of {name} is wrong: {reason}; see {command} --help",
    "the value of {name} is wrong: {reason}; did you mean {near}?",
    "option {name} requires an argument",
    "option {name} requires an argument; see {command} --help",
    "got unexpected extra argument ({words}); see {command} --help",
    "got unexpected extra arguments ({words}); see {command} --help",
)
"""What ``cli/usage.py`` makes of the errors of the command line's library."""
USAGE = [("click.UsageError", 2, "Command line", text) for text in WRONG_USAGE]


class CatalogueError(Exception):
    """The source has an error that the page cannot describe."""


def catalogue(
    templates: Sequence[ErrorTemplate], codes: Mapping[str, int], named: Codes | None = None
) -> str:
    """The generated part of the page.

    Args:
        templates: of :func:`error_templates`.
        codes: of :func:`error_classes`.
        named: the codes of the messages.

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
    return "\n".join(_lines(templates, codes, named or Codes.of(templates)))


def _lines(
    templates: Sequence[ErrorTemplate], codes: Mapping[str, int], named: Codes
) -> Iterator[str]:
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
            yield "| code | exit code | class | message |"
            yield "| --- | --- | --- | --- |"
        for each in errors:
            name = named.name(each)
            yield f"| {name} | {each.exit_code} | `{each.kind}` | {_code(each)} |"
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


def usage_table(codes: Codes) -> str:
    """What a command line that cannot be understood ends with."""
    known = {record[3]: code for code, record in codes.records.items() if record in USAGE}
    rows = [f"| {known[text]} | `{text}` |" for text in WRONG_USAGE]
    return "\n".join(["| code | message |", "| --- | --- |", *rows])


def page(current: str, generated: str, begin: str = BEGIN, end: str = END) -> str:
    """The page with what stands between two marks replaced."""
    head, rest = current.split(begin)
    _, tail = rest.split(end)
    return f"{head}{begin}\n\n{generated}\n\n{end}{tail}"


def main(words: Sequence[str]) -> int:
    """Write the page and the codes, or say whether they are up to date."""
    index = Index()
    templates, classes = error_templates(index), error_classes(index)
    codes = Codes.of(templates, Codes.read(CODES), USAGE)
    wanted = {
        PAGE: page(
            page(PAGE.read_text("utf-8"), catalogue(templates, classes, codes)),
            usage_table(codes),
            BEGIN_USAGE,
            END_USAGE,
        ),
        CODES: codes.text(MEANINGS),
    }
    stale = [
        path
        for path, text in wanted.items()
        if not path.exists() or path.read_text("utf-8") != text
    ]
    for path in stale:
        if "--check" in words:
            print(f"{path} is not up to date; run scripts/error_catalogue.py")
        else:
            path.write_text(wanted[path], encoding="utf-8")
    return int("--check" in words and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
