"""Every error that the package can tell a user, read from its source.

:func:`error_templates` returns one :class:`ErrorTemplate` for each text of each error: the class,
the exit code, the area of the program, and the message as literal pieces and placeholders.
``template.text`` is the message with its placeholders in braces, ``template.pattern`` a regular
expression that matches what a running program says.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from message_texts import (
    Placeholder,
    Scope,
    Text,
    bindings,
    entered,
    is_worded,
    texts,
)
from source_index import PACKAGE, Function, Index, Module

BASE = "AitError"
CLICK = ("UsageError", "BadParameter", "BadArgumentUsage", "ClickException", "fail")
QUOTED = ("ValueError", "Exception")
"""Classes whose text our messages quote: the first where we raise it, else our own of them."""

_CLICK_EXIT = 2
_OWN_WORDS = 3  # in a text that its callers complete, and that is listed without them too
_DEPTH = 4  # of functions that make errors through each other

AREAS = {
    "cli": "Command line",
    "common": "Command line",
    "dump": "Capture",
    "ptdbg": "Capture",
    "probe": "Starting programs under the probe",
    "bisect": "Bisection",
    "errcheck": "Overflow check",
    "plan": "Planning a capture",
    "compare": "Comparison",
    "invariance": "Comparison",
    "decisions": "Comparison",
    "transplanting": "Comparison",
    "engine": "Work on other machines",
    "mcp": "Tools for agents",
    "storage": "Dumps that are addressed by URL",
    "match": "Matching",
    "program": "Matching",
    "metrics": "Metrics and tolerances",
    "apicheck": "API check",
    "capsule": "Capsules of one operator",
    "convert": "Conversion of files",
    "export": "Conversion of files",
    "judge": "Operator check",
    "opcheck": "Operator check",
    "opcheck.golden": "Golden operators",
    "replay": "Replay",
    "hostatb": "The embedded acceleration library",
    "diagnosis": "Diagnosis",
    "dumps": "Reading dumps",
    "topology": "Graphs",
    "formats": "Tensor files",
    "report": "Reports",
    "language": "Command line",
    "core": "Ids, ranges and packages",
    "errors": "Ids, ranges and packages",
}
"""Titles by package below the root; the longest name that fits counts."""


@dataclass(frozen=True, slots=True)
class ErrorTemplate:
    """One text of one error.

    Attributes:
        kind: name of the class; that of click's own class with ``click.`` in front.
        exit_code: what a command that stops because of it ends with; None for a clause that is
            quoted in the text of another error.
        area: the part of the program, a value of :data:`AREAS`.
        module: file from the root of the repository.
        line: where it is raised; only for people, it moves with every edit.
        parts: literal pieces and placeholders, in order.
    """

    kind: str
    exit_code: int | None
    area: str
    module: str
    line: int
    parts: Text

    @property
    def text(self) -> str:
        """The message as ``str.format`` takes it, with placeholders as ``{name}``.

        A second placeholder of a name is ``{name 2}``.
        """
        seen: dict[str, list[str]] = {}
        result = ""
        for part in self.parts:
            if isinstance(part, str):
                result += part.replace("{", "{{").replace("}", "}}")
                continue
            sources = seen.setdefault(part.name, [])
            if part.source not in sources:
                sources.append(part.source)
            number = sources.index(part.source) + 1
            result += f"{{{part.name}}}" if number == 1 else f"{{{part.name} {number}}}"
        return result

    @property
    def literals(self) -> list[str]:
        """The literal pieces with words."""
        return [part for part in self.parts if isinstance(part, str) and is_worded((part,))]

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches what the program says, with one group for each placeholder.

        Ask :meth:`fits` first: a text with many placeholders takes long to refuse.
        """
        pieces = [re.escape(part) if isinstance(part, str) else "(.*?)" for part in self.parts]
        return re.compile("".join(pieces) + r"\Z", re.DOTALL)

    def fits(self, message: str) -> bool:
        """True if a message has the literal pieces in this order, from its start to its end."""
        at = 0
        for part in self.parts:
            if isinstance(part, str):
                at = message.find(part, at)
                if at < 0:
                    return False
                at += len(part)
        first, last = self.parts[:1], self.parts[-1:]
        return all(message.startswith(part) for part in first if isinstance(part, str)) and all(
            message.endswith(part) for part in last if isinstance(part, str)
        )


def error_templates(index: Index | None = None) -> list[ErrorTemplate]:
    """All errors of the package, by area and text, each text of a class once in an area."""
    found = list(_Search(index or Index()).templates())
    found = [each for each in found if each.exit_code is not None or is_worded(each.parts)]
    first: dict[tuple[str, str, str], ErrorTemplate] = {}
    for each in sorted(found, key=lambda each: (each.area, each.text, each.module, each.line)):
        first.setdefault((each.area, each.kind, each.text), each)
    return list(first.values())


def error_classes(index: Index | None = None) -> dict[str, int]:
    """Exit codes of all classes of the tree of errors, by name."""
    search = _Search(index or Index())
    codes = {name: search.exit_code(name) for name in sorted(search.classes)}
    return {name: code for name, code in codes.items() if code is not None}


def area_of(module: str) -> str:
    """The area of a module, given by its dotted name."""
    parts = module.removeprefix(f"{PACKAGE}.").split(".")
    for count in range(len(parts), 0, -1):
        if (title := AREAS.get(".".join(parts[:count]))) is not None:
            return title
    return "Other parts"


@dataclass(frozen=True, slots=True)
class _Class:
    module: Module
    node: ast.ClassDef
    base: str | None  # the first base that is in the tree


@dataclass(frozen=True, slots=True)
class _Made:
    """An error that an expression makes."""

    kind: str
    text: Text


class _Search:
    """Finds errors, and functions that make errors out of their arguments."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.classes = self._tree()
        self.called: set[int] = set()  # functions whose errors are told where they are called
        self.makers: dict[int, tuple[list[ast.Call], list[tuple[ast.Call, set[str]]]]] = {}

    def _tree(self) -> dict[str, _Class]:
        """Classes of errors, and those of our own whose text such an error quotes."""
        found: dict[str, _Class] = {}
        every = [
            (module, node) for module in self.index.modules.values() for node in module.every_class
        ]
        grown = True
        while grown:
            grown = False
            for module, node in every:
                if node.name in found:
                    continue
                bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
                # Of several bases, one of the tree of errors decides what the class is.
                known = sorted((name for name in bases if name in found), key=list(found).index)
                if known or set(bases) & set(QUOTED):
                    found[node.name] = _Class(module, node, known[0] if known else None)
                    grown = True
        return found

    def exit_code(self, name: str) -> int | None:
        """The class's own code, or that of its base; None outside the tree of errors."""
        each = self.classes.get(name)
        if each is None:
            return None
        for node in each.node.body:
            match node:
                case ast.Assign(
                    targets=[ast.Name(id="exit_code")], value=ast.Constant(value=int() as code)
                ):
                    return code
        return None if each.base is None else self.exit_code(each.base)

    def templates(self) -> Iterator[ErrorTemplate]:
        found: list[tuple[Function | None, ErrorTemplate]] = []
        for module in self.index.modules.values():
            for function, node in module.calls:
                if _is_super_init(node):
                    continue
                scope = Scope(self.index, module, function)
                for made in self.made(node, scope):
                    found.append((function, self._template(made, module, node)))
        for function, each in found:
            if (
                function is None
                or id(function.node) not in self.called
                or not _told(each.parts) & set(function.parameters)
                or sum(len(words.split()) for words in each.literals) >= _OWN_WORDS
            ):
                yield each

    def _template(self, made: _Made, module: Module, node: ast.AST) -> ErrorTemplate:
        code: int | None = _CLICK_EXIT
        if not made.kind.startswith("click."):
            code = self.exit_code(made.kind)
        line = getattr(node, "lineno", 0)
        return ErrorTemplate(
            made.kind, code, area_of(module.name), module.path, line, _named(made.text)
        )

    def made(self, call: ast.Call, scope: Scope) -> list[_Made]:
        """The errors that a call makes: of a class, or through functions that make errors."""
        click = _click(call)
        if click is not None:
            return [_Made(click, text) for text in texts(call.args[0], scope)]
        kind = self._class(call.func, scope)
        if kind is not None:
            return [_Made(kind, text) for text in self._message(kind, call, scope)]
        function = self.index.function(scope.module, scope.function, call.func)
        if function is None or scope.depth >= _DEPTH:
            return []
        returned, worded = self._errors_of(function)
        if not returned and not worded:
            return []
        found = [
            made
            for given in bindings(call, function, scope)
            for node in (
                *returned,
                *(node for node, names in worded if _gives_words(given, names)),
            )
            for made in self.made(node, entered(function, given, scope))
        ]
        if found:
            self.called.add(id(function.node))
        return found

    def _errors_of(
        self, function: Function
    ) -> tuple[list[ast.Call], list[tuple[ast.Call, set[str]]]]:
        """What makes the errors of a function that its callers word.

        Returns:
            calls in its return statements, and calls that it raises with the names of the
            parameters that go into their texts.
        """
        key = id(function.node)
        if key not in self.makers:
            self.makers[key] = ([], [])  # a function that calls itself
            scope = Scope(self.index, function.module, function)
            returned = [
                node
                for value in function.returned()
                for node in ast.walk(value)
                if isinstance(node, ast.Call) and self._makes(node, scope)
            ]
            worded = []
            for node in function.raised():
                told = {name for made in self.made(node, scope) for name in _told(made.text)}
                if names := told & function.text_parameters:
                    worded.append((node, names))
            self.makers[key] = (returned, worded)
        return self.makers[key]

    def _makes(self, node: ast.Call, scope: Scope) -> bool:
        if self._class(node.func, scope) is not None:
            return True
        function = self.index.function(scope.module, scope.function, node.func)
        return function is not None and bool(self._errors_of(function)[0])

    def _class(self, called: ast.expr, scope: Scope) -> str | None:
        if not isinstance(called, ast.Name):
            return None
        if called.id == QUOTED[0]:
            return called.id
        if called.id not in self.classes:
            return None
        found = self.index.definition(scope.module, called.id)
        return called.id if found is not None and found[1].name in self.classes else None

    def _message(self, kind: str, call: ast.Call, scope: Scope) -> Iterator[Text]:
        """Texts of an error of a class that is called with these arguments."""
        each = self.classes.get(kind)
        start: Function | None = None
        while each is not None and each.node.name != BASE:  # which passes its texts on
            start = each.module.method(each.node, "__init__")
            if start is not None:
                break
            each = self.classes[each.base] if each.base else None
        if each is None or start is None:
            yield from texts(call.args[0], scope) if call.args else [()]
            return
        for given in bindings(call, start, scope, bound=True):
            within = entered(start, given, scope)
            for node in ast.walk(start.node):
                if _is_super_init(node):
                    assert isinstance(node, ast.Call)
                    if each.base is None:
                        yield from texts(node.args[0], within)
                    else:
                        yield from self._message(each.base, node, within)


def _is_super_init(node: ast.AST) -> bool:
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__init__")
        ):
            return True
    return False


def _click(call: ast.Call) -> str | None:
    if isinstance(call.func, ast.Attribute) and call.func.attr in CLICK and call.args:
        owner = ast.unparse(call.func.value)
        if owner == "click":
            return f"click.{call.func.attr}"
        if owner == "ctx" and call.func.attr == "fail":
            return "click.UsageError"
    return None


def _told(text: Text) -> set[str]:
    """The names of variables whose value is told as it is."""
    return {part.source for part in text if isinstance(part, Placeholder)}


def _gives_words(given: Mapping[str, Text], names: set[str]) -> bool:
    """True if a caller gives a clause, and not only the name of something."""
    parts = [part for name in names for part in given.get(name, ())]
    return any(isinstance(part, str) and " " in part.strip() for part in parts)


def _named(text: Text) -> Text:
    """The text with ``{value}`` for placeholders that have no word."""
    return tuple(
        part if isinstance(part, str) or part.name else replace(part, name="value") for part in text
    )
