"""What the Chinese catalogue lacks: texts of errors and of help that have no translation.

    python scripts/translations.py [--area TEXT] > missing.json

Prints a JSON object of the texts with empty translations, to be filled and saved below
``ait_llm/language/zh``. Ends with 1 if a text is missing or a translation has other placeholders.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from error_templates import error_templates

from ait_llm.cli.llm import own_commands
from ait_llm.cli.localised import paragraphs
from ait_llm.cli.main import ait
from ait_llm.language.catalogue import names_of, read_entries

ZH = Path(__file__).parents[1] / "ait_llm" / "language" / "zh"
_LETTERS = re.compile(r"[A-Za-z]{2}")
_COMMANDS = ("ait ", "python ", "unzip ", "eval ", "$ ")


def wanted() -> dict[str, str]:
    """Texts that people read, each with the part of the program that says it."""
    found: dict[str, str] = {}
    for template in error_templates():
        literal = "".join(part for part in template.parts if isinstance(part, str))
        if _LETTERS.search(literal):
            found.setdefault(template.text, template.area)
    for command in commands():
        for text in help_texts(command):
            if _LETTERS.search(text) and not text.startswith(_COMMANDS):
                found.setdefault(text, f"help of {command.name}")
    return found


def commands() -> Iterator[click.Command]:
    """All of ours, groups included."""
    yield ait
    group = ait.get_command(click.Context(ait), "llm")
    assert isinstance(group, click.Group)
    yield group
    for name in own_commands():
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield command


def help_texts(command: click.Command) -> Iterator[str]:
    """Paragraphs and options of one help."""
    yield command.get_short_help_str(limit=100)
    for text in (command.help, command.epilog):
        yield from paragraphs(text or "")
    for param in command.params:
        if isinstance(param, click.Option) and param.help and not param.hidden:
            yield " ".join(param.help.split())
            if isinstance(param.show_default, str):
                yield param.show_default


def entries() -> dict[str, str]:
    """The catalogue."""
    return read_entries(sorted(ZH.glob("*.json")))


def missing() -> dict[str, str]:
    """Texts without translation."""
    known = entries()
    return {text: area for text, area in wanted().items() if text not in known}


def unlike() -> list[str]:
    """Texts whose translation has other placeholders."""
    return [text for text, said in entries().items() if names_of(text) != names_of(said)]


def main() -> int:
    """Print what is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--area", default="", help="only parts of the program with that text")
    given = parser.parse_args()
    found = [text for text, area in missing().items() if given.area in area]
    json.dump(dict.fromkeys(found, ""), sys.stdout, ensure_ascii=False, indent=1)
    print()
    for text in (wrong := unlike()):
        print(f"other placeholders: {text}", file=sys.stderr)
    return int(bool(found or wrong))


if __name__ == "__main__":
    sys.exit(main())
