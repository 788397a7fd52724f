"""Pages of the documentation: their blocks, their links, and their commands run for true.

A page is run in one working folder:

- a fenced block with ``title="name"`` becomes the file of that name;
- every ``$ command`` of a ``console`` block is run, and what it prints, stdout and stderr together,
  is what the page shows. ``$ echo $?`` shows the exit code of the command before it; a command
  without it ends with 0. A line of ``...`` stands for any lines, ``/home/me`` for the folder;
- a ``python`` block right before a ``text`` block prints that text.

Times, processes, sizes of disks and places of packages differ between runs; see :func:`normal`.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')
_ENGLISH = {"LC_ALL": "C.UTF-8"}  # the language of what pages show
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?|\d+e[+-]?\d+")
# These start other programs, and their output goes past Python's streams.
_LAUNCHES = re.compile(r"^ait llm (dump|errcheck|bisect|doctor|plan)\b|[|<>&;$]")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        language: ``console``, ``python``, …; empty if none is given.
        text: what is in it, with a line break at the end, without the indent of its fence.
        line: number of the fence's line, from 1.
        title: the name of the file that it is, or empty.
    """

    language: str
    text: str
    line: int
    title: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a page.

    Attributes:
        command: without the ``$``, in one line.
        shown: the lines below it.
        line: its number in the page.
        exit_code: that which ``echo $?`` shows below, else 0.
    """

    command: str
    shown: tuple[str, ...]
    line: int
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command printed, and its exit code."""

    output: str
    exit_code: int


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page."""
    found = []
    for match in _FENCE.finditer(text):
        indent, language, rest, body = match.groups()
        title = _TITLE.search(rest)
        body = re.sub(rf"^{indent}", "", body, flags=re.MULTILINE)
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(language, body, line, title[1] if title else ""))
    return found


def steps(block: Block) -> list[Step]:
    """The commands of a console block. A backslash at the end of a line continues it."""
    commands: list[tuple[str, list[str], int]] = []
    continued = False
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if continued:
            command, shown, first = commands.pop()
            commands.append((f"{command.removesuffix(chr(92))} {line.strip()}", shown, first))
        elif line.startswith("$ "):
            commands.append((line[2:], [], number))
        else:
            commands[-1][1].append(line)
            continue
        continued = line.endswith("\\")
    found: list[Step] = []
    for command, shown, number in commands:
        if command == "echo $?":
            last = found.pop()
            found.append(Step(last.command, last.shown, last.line, int(shown[0])))
        else:
            found.append(Step(command, tuple(shown), number))
    return found


def page_steps(text: str) -> list[Step]:
    """All commands of a page."""
    return [step for block in blocks(text) if block.language == "console" for step in steps(block)]


@dataclass
class Captures:
    """Captures of demo programs, each made once for all pages that show it."""

    folder: Path
    known: dict[tuple[str, ...], tuple[Ran, Path, Path]] = field(default_factory=dict)

    def key(self, words: Sequence[str]) -> tuple[str, ...] | None:
        """What decides the capture; None for other commands."""
        if tuple(words[:3]) != ("ait", "llm", "dump") or "-o" not in words:
            return None
        place = words.index("-o")
        program = words[words.index("--exec") + 1]
        if not program.startswith("python -m ait_llm.hostatb.demo.") or "--save" in program:
            return None
        if "--follow" in program:
            return None
        return (*words[:place], *words[place + 2 :])


@dataclass
class Shell:
    """Runs the commands of one page.

    Attributes:
        folder: where they run.
        environment: their environment; ``ait`` and ``python`` come from its PATH.
        captures: for captures of demo programs; None to make each again.
        in_process: whether commands that start no program may run in this process.
    """

    folder: Path
    environment: Mapping[str, str]
    captures: Captures | None = None
    in_process: bool = True

    def run(self, command: str) -> Ran:
        """Run a command as a terminal does, with stdout and stderr together."""
        words = shlex.split(command)
        key = self.captures.key(words) if self.captures else None
        if key is None or self.captures is None:
            return self._run(command)
        output = Path(words[words.index("-o") + 1])
        if key in self.captures.known:
            ran, made, place = self.captures.known[key]
            shutil.copytree(made, self.folder / output, copy_function=os.link)
            text = ran.output.replace(str(place), str(self.folder / output))
            return Ran(text, ran.exit_code)
        ran = self._run(command)
        made = self.captures.folder / str(len(self.captures.known))
        shutil.copytree(self.folder / output, made, copy_function=os.link)
        self.captures.known[key] = (ran, made, self.folder / output)
        return ran

    def _run(self, command: str) -> Ran:
        if self.in_process and command.startswith("ait ") and not _LAUNCHES.search(command):
            return self._call(shlex.split(command)[1:])
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return Ran(done.stdout, done.returncode)

    def _call(self, words: list[str]) -> Ran:
        from ait_llm.cli.main import ait

        before = Path.cwd()
        os.chdir(self.folder)
        try:
            result = CliRunner(env=_ENGLISH).invoke(ait, words, prog_name="ait")
        finally:
            os.chdir(before)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.output, result.exit_code)


def own_environment() -> dict[str, str]:
    """This environment with our commands first on PATH and without settings of a probe."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ATB_", "AIT_", "HOSTATB_")) or name == "AIT_LLM_LIB_DIR"
    }
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}",
        **_ENGLISH,
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
    }


def run_page(text: str, shell: Shell) -> Iterator[tuple[Step, Ran]]:
    """Write the files of a page and run its commands, in the order of the page.

    A python block right before a text block counts as a command.
    """
    found = blocks(text)
    for block, following in zip(found, [*found[1:], None], strict=True):
        if block.title:
            path = shell.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            for step in steps(block):
                yield step, shell.run(step.command)
        elif block.language == "python" and following is not None and following.language == "text":
            (shell.folder / ".page.py").write_text(block.text, encoding="utf-8")
            step = Step("python .page.py", tuple(following.text.splitlines()), block.line)
            yield step, shell.run(step.command)


def check_page(text: str, shell: Shell) -> None:
    """Run a page and assert that its commands do what it shows."""
    for step, ran in run_page(text, shell):
        where = f"line {step.line}: {step.command}\nended with {ran.exit_code}"
        assert ran.exit_code == step.exit_code, f"{where}, not {step.exit_code}\n{ran.output}"
        if step.shown:
            difference = first_difference(step.shown, ran.output, shell.folder)
            assert difference is None, f"{where}\n{difference}\nIt printed:\n{ran.output}"


def normal(text: str) -> str:
    """The text without what differs between runs and machines."""
    # A command that takes long says every ten seconds how far it is.
    text = re.sub(r"^[a-z]+ [\d,]+(?: of [\d,]+)? [a-z].*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"(?<=[_/])\d{14}(?=\b|_)|(?<=[_/])\d{8}_\d{6}", "STAMP", text)
    text = re.sub(r"(diff_analyze|step0_0|overflow_res)_\d+", r"\1_N", text)
    text = re.sub(r"/\S*?(?=/lib/(libatb_probe|hostatb/cxx))", "/opt/ait_llm", text)
    text = re.sub(r"/\S*/(?=bin/python|site-packages)", "/opt/", text)
    text = re.sub(r"(?<=native        ).*; builds: .*", "BUILDS", text)
    text = re.sub(r"\b\d+\.\d+\.\d+(\+\w+)?", "VERSION", text)
    text = re.sub(r"(/(?:layer|model|\w+_io_tensors))/\d+", r"\1/PID", text)
    text = re.sub(r"\bprocess( +)(\d+|-?\d+_\d+)\b", r"process\1PID", text)
    text = re.sub(r"[\d.]+ GiB( of [\d.]+ GiB)? free", "SPACE free", text)
    # Doctor adds this line where less than 10 GiB are free.
    text = re.sub(r"(SPACE free in .*)\n {12,}disables: tensors of a large model; .*", r"\1", text)
    text = re.sub(r"\b(in|,) [\d.]+ s\b", r"\1 TIME", text)
    text = re.sub(r"\.zip \([\d,]+ bytes\)", ".zip (SIZE)", text)
    # Which of many wrong elements is the example is up to the order of the search.
    text = re.sub(r"\[[\d, ]+\] is \S+ and should\s+be\s+[^\s;]+", "ELEMENT", text)
    # Instructions of the processor decide how torch rounds float16: AVX2 4.7e-05, AMX 0 or 5e-04.
    rounding = r"(?:0|0\.000\d+|\d(?:\.\d+)?e-\d\d)(?= inherited from its inputs)"
    text = re.sub(rf"(?<=relative error: ){rounding}", "ROUNDING", text)
    # Lines are wrapped where a path or a number has another length.
    return re.sub(r"\n {12,}(?=\S)", " ", text)


def first_difference(shown: Sequence[str], output: str, folder: Path) -> str | None:
    """Where a command printed something else than the page shows; None if it did not.

    Args:
        shown: lines of the page; ``...`` stands for any lines.
        output: what was printed.
        folder: where it ran, ``/home/me`` in the page.
    """
    text = output.replace(f"{folder}/", "/home/me/").replace(str(folder), "/home/me")
    text = normal(text).rstrip()
    parts: list[list[str]] = [[]]
    for line in shown:
        if line.strip() == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    place = 0
    for number, part in enumerate(parts):
        wanted = normal("\n".join(part)).rstrip()
        if not wanted:
            continue
        start = 0 if number == 0 else place
        end = _end_of(wanted, text, start, anchored=number == 0, last=number == len(parts) - 1)
        if end is None:
            return _explanation(wanted, text[place:])
        place = end
    return None


def _end_of(wanted: str, text: str, start: int, *, anchored: bool, last: bool) -> int | None:
    """Where the first passage like this ends; fractions may differ in their last digits.

    Processors add up in different orders, so a fraction may be off by five per cent.
    """
    pattern = _NUMBER.sub("\0", wanted)
    pattern = re.escape(pattern).replace(re.escape("\0"), f"({_NUMBER.pattern})")
    expression = re.compile(pattern + (r"\Z" if last else r"(?!\S)"))
    numbers = [float(each) for each in _NUMBER.findall(wanted)]
    while match := expression.search(text, start):
        if anchored and match.start() != 0:
            return None
        pairs = zip(numbers, map(float, match.groups()), strict=True)
        if all(math.isclose(a, b, rel_tol=0.05) for a, b in pairs):
            return match.end()
        start = match.start() + 1
    return None


def _explanation(wanted: str, text: str) -> str:
    """The first line that is not there, or that the order is another one."""
    for line in wanted.splitlines():
        if _end_of(line.strip(), text, 0, anchored=False, last=False) is None:
            return f"shown and not printed: {line}"
    return "printed, but with other lines before, between or after:\n" + wanted


def slug(heading: str) -> str:
    """The anchor that GitHub and the site give to a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """The anchors of a page; ``{ #name }`` behind a heading is its own, as translations have it."""
    found: set[str] = set()
    plain = _FENCE.sub("", text)
    for heading in re.findall(r"^#{1,6} (.*?)(?: \{ ?#([\w-]+) ?\})?$", plain, re.MULTILINE):
        name = base = heading[1] or slug(heading[0])
        count = 0
        while name in found:
            count += 1
            name = f"{base}_{count}"
        found.add(name)
    return found


def links(text: str) -> list[str]:
    """Where a page links to, with anchors; other hosts are left out."""
    plain = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))
    return re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", plain)
