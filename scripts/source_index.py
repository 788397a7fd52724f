"""Names of the package's source and what they stand for, from its syntax trees alone."""

from __future__ import annotations

import ast
import contextlib
import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "ait_llm"


@dataclass(eq=False)
class Function:
    """A function or method.

    Attributes:
        module: where it is defined.
        node: its definition.
        owner: the class around it, if any.
        nodes: what is in its body, in order, without that of functions and classes within it.
    """

    module: Module
    node: ast.FunctionDef | ast.AsyncFunctionDef
    owner: ast.ClassDef | None = None
    nodes: list[ast.AST] = field(default_factory=list)

    @property
    def is_method(self) -> bool:
        """True if its first parameter is the object."""
        static = any(ast.unparse(each) == "staticmethod" for each in self.node.decorator_list)
        return self.owner is not None and not static

    @cached_property
    def parameters(self) -> list[str]:
        """Names that positional arguments go to."""
        arguments = self.node.args
        return [each.arg for each in (*arguments.posonlyargs, *arguments.args)]

    @cached_property
    def defaults(self) -> dict[str, ast.expr]:
        """Values of parameters that a call may leave out."""
        arguments = self.node.args
        count = len(arguments.defaults)
        found = dict(
            zip(self.parameters[-count:], arguments.defaults, strict=True) if count else ()
        )
        for name, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if value is not None:
                found[name.arg] = value
        return found

    def binds(self, name: str) -> bool:
        """True if a name is one of the function's own."""
        return name in self._arguments or name in self._stored

    def changes(self, parameter: str) -> bool:
        """True if a parameter gets another value."""
        return parameter in self._stored

    def assigned(self, name: str) -> list[ast.expr]:
        """What ``name = ...`` gives a name; empty if something else changes it too."""
        values = self._values.get(name, [])
        known = len(values) == self._stored.get(name, 0) and name not in self._arguments
        return values if known else []

    @cached_property
    def _arguments(self) -> set[str]:
        return {each.arg for each in ast.walk(self.node.args) if isinstance(each, ast.arg)}

    @cached_property
    def _stored(self) -> Counter[str]:
        names: Counter[str] = Counter()
        for each in self.nodes:
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                names[each.id] += 1
            elif isinstance(each, ast.ExceptHandler) and each.name:
                names[each.name] += 1
        return names

    @cached_property
    def _values(self) -> dict[str, list[ast.expr]]:
        values: dict[str, list[ast.expr]] = {}
        for each in self.nodes:
            match each:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    values.setdefault(name, []).append(value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    values.setdefault(name, []).append(value)
        return values

    def returned(self) -> list[ast.expr]:
        """The values of its return statements."""
        return [each.value for each in self.nodes if isinstance(each, ast.Return) and each.value]

    def raised(self) -> list[ast.Call]:
        """The calls that its raise statements raise."""
        return [
            each.exc
            for each in self.nodes
            if isinstance(each, ast.Raise) and isinstance(each.exc, ast.Call)
        ]

    @cached_property
    def text_parameters(self) -> set[str]:
        """Names of parameters that are texts."""
        arguments = self.node.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        return {
            each.arg
            for each in every
            if isinstance(each.annotation, ast.Name) and each.annotation.id == "str"
        }


@dataclass(eq=False)
class Module:
    """One module of the package.

    Attributes:
        name: dotted.
        path: from the root of the repository.
        tree: its syntax.
        functions, classes, constants: what it defines at its top, by name.
        every_class: its classes, those within others too.
        calls: its calls, each with the innermost function around it.
        imported: module and name there of each name that it imports.
    """

    name: str
    path: str
    tree: ast.Module
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    constants: dict[str, ast.expr] = field(default_factory=dict)
    every_class: list[ast.ClassDef] = field(default_factory=list)
    calls: list[tuple[Function | None, ast.Call]] = field(default_factory=list)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    _methods: dict[tuple[int, str], Function] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._visit(self.tree.body, None, None)
        for node in self.tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.constants[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self.constants[name] = value

    def method(self, owner: ast.ClassDef, name: str) -> Function | None:
        """A method that a class itself defines."""
        return self._methods.get((id(owner), name))

    def _visit(
        self, nodes: Iterable[ast.AST], function: Function | None, owner: ast.ClassDef | None
    ) -> None:
        """Note all that lies in some nodes, once."""
        for node in nodes:
            if function is not None:
                function.nodes.append(node)
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    inner = Function(self, node, owner)
                    if owner is not None:
                        self._methods[id(owner), node.name] = inner
                    elif function is None:
                        self.functions[node.name] = inner
                    self._visit(node.body, inner, None)
                    continue
                case ast.ClassDef():
                    self.every_class.append(node)
                    if owner is None and function is None:
                        self.classes[node.name] = node
                    self._visit(node.body, None, node)
                    continue
                case ast.ImportFrom(module=str() as origin, level=0):
                    for alias in node.names:
                        self.imported[alias.asname or alias.name] = (origin, alias.name)
                case ast.Call():
                    self.calls.append((function, node))
            self._visit(ast.iter_child_nodes(node), function, owner)


@contextlib.contextmanager
def _kept() -> Iterator[None]:
    """Nothing made here is garbage, and looking for some among all nodes takes half the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Index:
    """All modules of the package, and what a name in one of them means."""

    def __init__(self, root: Path = ROOT) -> None:
        self.modules: dict[str, Module] = {}
        for folder, prefix in (
            (root / PACKAGE, PACKAGE),
            (root / "cli", f"{PACKAGE}.cli"),
            (root / "opcheck", f"{PACKAGE}.opcheck"),
        ):
            for path in sorted(folder.rglob("*.py")):
                inside = path.relative_to(folder)
                if folder.name == PACKAGE and inside.parts[0] in ("cli", "opcheck"):
                    continue  # links to the folders beside
                parts = [prefix, *inside.with_suffix("").parts]
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                with _kept():
                    tree = ast.parse(path.read_text(encoding="utf-8"))
                    self.modules[name] = Module(name, str(path.relative_to(root)), tree)

    def constant(self, module: Module, name: str) -> tuple[Module, ast.expr] | None:
        """The value of a constant of the module or of one that it imports from."""
        found = self._home(module, name, lambda each, own: own in each.constants)
        return None if found is None else (found[0], found[0].constants[found[1]])

    def definition(self, module: Module, name: str) -> tuple[Module, ast.ClassDef] | None:
        """The class of a name, wherever it is defined."""
        found = self._home(module, name, lambda each, own: own in each.classes)
        return None if found is None else (found[0], found[0].classes[found[1]])

    def function(
        self, module: Module, around: Function | None, called: ast.expr
    ) -> Function | None:
        """The function of the package that ``called`` means; None for anything else."""
        if isinstance(called, ast.Name):
            found = self._home(module, called.id, lambda each, own: own in each.functions)
            return None if found is None else found[0].functions[found[1]]
        if (
            isinstance(called, ast.Attribute)
            and isinstance(called.value, ast.Name)
            and called.value.id in ("self", "cls")
            and around is not None
            and around.owner is not None
        ):
            return module.method(around.owner, called.attr)
        return None

    def _home(
        self, module: Module, name: str, has: Callable[[Module, str], bool]
    ) -> tuple[Module, str] | None:
        seen: set[tuple[str, str]] = set()
        while (module.name, name) not in seen:
            seen.add((module.name, name))
            if has(module, name):
                return module, name
            if name not in module.imported:
                return None
            origin, name = module.imported[name]
            if origin not in self.modules:
                return None
            module = self.modules[origin]
        return None
