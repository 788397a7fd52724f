"""Cutting the definition of a function out of this package, with all that it needs.

The result is a small package of its own: of each module the top-level statements that the wanted
names depend on, as they are written, with their comments. What only this package needs, the
registration of operators and imports for type checkers, is left out. Modules of others are imported
as before.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from ait_llm.errors import UsageError

PACKAGE = "source"
"""Name of the package that is made."""
_OURS = "ait_llm"
# Types that NumPy lacks. Golden operators compute with torch and never look at them.
_ABSENT = {
    "ml_dtypes": '"""Stands in for ml_dtypes: NumPy types that nothing here computes with."""\n\n\n'
    "def __getattr__(name):\n"
    '    if name.startswith("__"):\n'
    "        raise AttributeError(name)\n"
    "    return None\n"
}
_REGISTRATIONS = frozenset({"golden_op", "collective_op", "register", "module"})


@dataclass(frozen=True, eq=False)
class _Statement:
    """A top-level statement: the names that it defines and those that it uses."""

    node: ast.stmt
    first: int
    last: int
    defines: frozenset[str]
    uses: frozenset[str]


@dataclass(frozen=True, eq=False)
class _Parsed:
    """What a module consists of."""

    lines: Sequence[str]
    docstring: ast.stmt | None
    statements: Sequence[_Statement]
    imports: Mapping[str, tuple[ast.Import | ast.ImportFrom, ast.alias]]

    @cached_property
    def defined(self) -> frozenset[str]:
        """All names of its own."""
        return frozenset().union(*(statement.defines for statement in self.statements))


@dataclass(eq=False)
class _Module:
    """One module, and which names of it are wanted."""

    name: str
    parsed: _Parsed
    wanted: set[str] = field(default_factory=set)


class Extraction:
    """Collects definitions and writes them as files of a package.

    Example:
        >>> extraction = Extraction()
        >>> extraction.add("ait_llm.core.ids", "OpId")
        >>> sorted(extraction.files())
        ['source/__init__.py', 'source/errors.py', 'source/ids.py']
    """

    def __init__(self) -> None:
        self._modules: dict[str, _Module] = {}
        self._absent: set[str] = set()

    def add(self, module: str, name: str) -> str:
        """Include a name of a module; returns the module of the made package that holds it.

        Raises:
            UsageError: the source of the module cannot be read, or has no such name.
        """
        found, own = self._resolve(module, name)
        self._want(found, own)
        return f"{PACKAGE}.{self._short(found.name)}"

    def files(self) -> dict[str, str]:
        """The text of each file by its path within the capsule."""
        files = {f"{PACKAGE}/__init__.py": f'"""Definitions cut out of {_OURS}, unchanged."""\n'}
        for name in sorted(self._absent):
            files[f"{PACKAGE}/{name}.py"] = _ABSENT[name]
        for module in self._modules.values():
            if module.wanted:
                files[f"{PACKAGE}/{self._short(module.name)}.py"] = self._text(module)
        return dict(sorted(files.items()))

    def _module(self, name: str) -> _Module:
        if name not in self._modules:
            self._modules[name] = _Module(name, _parse(name))
        return self._modules[name]

    def _resolve(self, module: str, name: str) -> tuple[_Module, str]:
        """The module that defines a name, through the modules that pass it on."""
        found = self._module(module)
        if name in found.parsed.defined:
            return found, name
        if name in found.parsed.imports:
            node, alias = found.parsed.imports[name]
            if isinstance(node, ast.ImportFrom) and _is_ours(node.module):
                return self._resolve(str(node.module), alias.name)
        raise UsageError(f"{module} has no {name!r} that could be copied into a capsule")

    def _want(self, module: _Module, name: str) -> None:
        if name in module.wanted:
            return
        module.wanted.add(name)
        for statement in module.parsed.statements:
            if name in statement.defines:
                for used in statement.uses:
                    self._use(module, used)
                for node in _inner_imports(statement.node):
                    for alias in node.names:
                        self.add(str(node.module), alias.name)

    def _use(self, module: _Module, name: str) -> None:
        if name in module.parsed.defined:
            self._want(module, name)
        elif name in module.parsed.imports:
            node, alias = module.parsed.imports[name]
            module.wanted.add(name)
            if isinstance(node, ast.ImportFrom) and _is_ours(node.module):
                self.add(str(node.module), alias.name)
            elif isinstance(node, ast.Import) and alias.name in _ABSENT:
                self._absent.add(alias.name)

    def _short(self, module: str) -> str:
        """The last part of a module's name, or more where two modules share it."""
        parts = module.split(".")
        last = parts[-1]
        others = [name for name in self._modules if name.split(".")[-1] == last]
        return last if len(others) < 2 else "_".join(parts[1:] if parts[0] == _OURS else parts)

    def _text(self, module: _Module) -> str:
        parts = []
        parsed = module.parsed
        if parsed.docstring is not None:
            parts.append(_cut(parsed.lines, parsed.docstring.lineno, parsed.docstring.end_lineno))
        parts.append("from __future__ import annotations")
        imports = _merged(self._import_lines(module))
        if imports:
            parts.append("\n".join(imports))
        body = []
        for statement in parsed.statements:
            if statement.defines & module.wanted:
                body.append(self._renamed(_cut(parsed.lines, statement.first, statement.last)))
        return "\n\n".join(parts) + "\n\n" + "\n\n".join(body) + "\n"

    def _import_lines(self, module: _Module) -> Iterator[str]:
        for name in sorted(module.wanted & set(module.parsed.imports)):
            node, alias = module.parsed.imports[name]
            renamed = f" as {alias.asname}" if alias.asname else ""
            if isinstance(node, ast.Import):
                if alias.name in _ABSENT:
                    yield f"from {PACKAGE} import {alias.name}{renamed}"
                else:
                    yield f"import {alias.name}{renamed}"
                continue
            if _is_ours(node.module):
                found, own = self._resolve(str(node.module), alias.name)
                renamed = f" as {name}" if name != own else ""
                yield f"from {PACKAGE}.{self._short(found.name)} import {own}{renamed}"
            else:
                yield f"from {node.module} import {alias.name}{renamed}"

    def _renamed(self, text: str) -> str:
        """Imports within functions, of the modules that now have other names."""

        def line(match: re.Match[str]) -> str:
            names = [part.strip() for part in match[3].split(",")]
            lines = []
            for name in names:
                own, _, alias = name.partition(" as ")
                found, real = self._resolve(match[2], own)
                renamed = f" as {alias or own}" if (alias or own) != real else ""
                lines.append(
                    f"{match[1]}from {PACKAGE}.{self._short(found.name)} import {real}{renamed}"
                )
            return "\n".join(lines)

        return re.sub(rf"(?m)^( +)from ({_OURS}[\w.]*) import ([\w, ]+)$", line, text)


def _merged(lines: Iterable[str]) -> list[str]:
    """Imports in order, those of one module on one line; our own last."""
    names: dict[str, list[str]] = {}
    for line in dict.fromkeys(lines):
        start, _, name = line.partition(" import ") if line.startswith("from") else (line, "", "")
        names.setdefault(start, []).append(name)
    order = sorted(names, key=lambda start: (f"from {PACKAGE}" in start, start))
    return [
        f"{start} import {', '.join(names[start])}" if names[start] != [""] else start
        for start in order
    ]


def _is_ours(module: str | None) -> bool:
    return module is not None and (module == _OURS or module.startswith(f"{_OURS}."))


def _source(name: str) -> tuple[Path, str]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise UsageError(
            f"the source of {name} is not there, so that its operators cannot be put into a "
            "capsule; give --golden as a .py file or an installed module"
        )
    path = Path(spec.origin)
    return path, path.read_text(encoding="utf-8")


@cache
def _parse(name: str) -> _Parsed:
    path, text = _source(name)
    tree = ast.parse(text, str(path))
    lines = text.splitlines()
    docstring = None
    statements: list[_Statement] = []
    imports: dict[str, tuple[ast.Import | ast.ImportFrom, ast.alias]] = {}
    last = 0
    for node in tree.body:
        first = _first_line(node, lines, last)
        last = node.end_lineno or node.lineno
        if isinstance(node, ast.Expr):
            if node is tree.body[0] and isinstance(node.value, ast.Constant):
                docstring = node
            continue  # a call for its effect: it registers something
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            if not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
                for alias in node.names:
                    imports[alias.asname or alias.name.partition(".")[0]] = (node, alias)
            continue
        if _is_type_checking(node):
            continue
        defines = frozenset(_defined(node))
        statements.append(_Statement(node, first, last, defines, frozenset(_used(node))))
    return _Parsed(lines, docstring, statements, imports)


def _is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _first_line(node: ast.stmt, lines: list[str], after: int) -> int:
    """Of a statement with the comments above it; without the decorator that registers it."""
    first = node.lineno  # of `def` or `class`
    kept = [each for each in getattr(node, "decorator_list", ()) if not _registers(each)]
    if kept:
        first = min(each.lineno for each in kept)
    elif getattr(node, "decorator_list", ()):
        return first  # comments above belong to the decorators
    while first - 2 >= after and lines[first - 2].startswith("#"):
        first -= 1
    return first


def _registers(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in _REGISTRATIONS


def _defined(node: ast.stmt) -> Iterator[str]:
    """Names that a top-level statement binds or fills."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
        return
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id
        elif isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Store):
            if isinstance(each.value, ast.Name):
                yield each.value.id
        elif isinstance(each, (ast.FunctionDef, ast.ClassDef)):
            yield each.name


def _used(node: ast.stmt) -> Iterator[str]:
    """Names that a statement reads anywhere, but for decorators that register it."""
    parts: Iterable[ast.AST] = [node]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        left_out = {id(each) for each in node.decorator_list if _registers(each)}
        parts = [each for each in ast.iter_child_nodes(node) if id(each) not in left_out]
    for part in parts:
        for each in ast.walk(part):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
                yield each.id


def _inner_imports(node: ast.stmt) -> Iterator[ast.ImportFrom]:
    for each in ast.walk(node):
        if isinstance(each, ast.ImportFrom) and _is_ours(each.module):
            yield each


def _cut(lines: Sequence[str], first: int, last: int | None) -> str:
    return "\n".join(lines[first - 1 : last])
