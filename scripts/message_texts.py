"""The texts that an expression of the source can have, read from the source without running it.

A text is a tuple of parts: literal pieces, and placeholders for what is known only when the
program runs. ``f"{path}: holds {'no' if empty else 'odd'} values"`` has two texts. Names of
constants, of local variables and of functions that return texts are followed, also into other
modules of the package.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from source_index import Function, Index, Module

MOST = 24  # texts of one expression; beyond, it is one placeholder
_DEPTH = 6  # of functions within functions


@dataclass(frozen=True, slots=True)
class Placeholder:
    """What a running program fills in.

    Attributes:
        name: a word for it, such as ``path``.
        source: the expression.
    """

    name: str
    source: str


Part = str | Placeholder
Text = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """Where an expression stands.

    Attributes:
        index: the package.
        module: its module.
        function: the function around it, if any.
        given: texts of parameters, where a call gives them.
        depth: how many calls have been followed.
        busy: names that are being followed.
    """

    index: Index
    module: Module
    function: Function | None = None
    given: Mapping[str, Text] = field(default_factory=dict)
    depth: int = 0
    busy: frozenset[str] = frozenset()


def texts(node: ast.expr, scope: Scope) -> list[Text]:
    """The texts that an expression can have, at least one."""
    found = list(dict.fromkeys(map(_joined, itertools.islice(_texts(node, scope), 10 * MOST))))
    return found if 0 < len(found) <= MOST else [(placeholder(node),)]


def _texts(node: ast.expr, scope: Scope) -> Iterator[Text]:
    match node:
        case ast.Constant() if isinstance(node.value, (str, int, float)):
            yield (str(node.value),)
        case ast.JoinedStr():
            yield from _product([texts(value, scope) for value in node.values])
        case ast.FormattedValue():
            yield from _formatted(node, scope)
        case ast.BinOp(op=ast.Add()):
            yield from _product([texts(node.left, scope), texts(node.right, scope)])
        case ast.IfExp():
            yield from _chosen(node, scope)
        case ast.BoolOp(op=ast.Or()):
            for value in node.values[:-1]:
                yield from filter(None, texts(value, scope))
            yield from texts(node.values[-1], scope)
        case ast.Name():
            yield from _name(node, scope)
        case ast.Subscript() | ast.Call():
            yield from _looked_up(node, scope) or [(placeholder(node),)]
        case _:
            yield (placeholder(node),)


def _product(choices: Sequence[list[Text]]) -> Iterator[Text]:
    for parts in itertools.product(*choices):
        yield tuple(itertools.chain.from_iterable(parts))


def _formatted(node: ast.FormattedValue, scope: Scope) -> Iterator[Text]:
    if node.format_spec is not None:
        yield (placeholder(node.value),)
        return
    for text in texts(node.value, scope):
        if node.conversion == ord("r") and all(isinstance(part, str) for part in text):
            yield (repr("".join(map(str, text))),)
        else:
            yield text


def _chosen(node: ast.IfExp, scope: Scope) -> Iterator[Text]:
    known = _truth(node.test, scope)
    if known is not False:
        yield from texts(node.body, scope)
    if known is not True:
        yield from texts(node.orelse, scope)


def _truth(test: ast.expr, scope: Scope) -> bool | None:
    """Whether a parameter that is tested is empty; None where only a run can tell."""
    if not isinstance(test, ast.Name) or test.id not in scope.given:
        return None
    text = scope.given[test.id]
    return None if any(isinstance(part, Placeholder) for part in text) else bool(text)


def _name(node: ast.Name, scope: Scope) -> Iterator[Text]:
    changed = scope.function is not None and scope.function.changes(node.id)
    if node.id in scope.given and not changed:
        yield scope.given[node.id]
        return
    if node.id in scope.busy:
        yield (placeholder(node),)
        return
    within = replace(scope, busy=scope.busy | {node.id})
    values = [] if scope.function is None else scope.function.assigned(node.id)
    if not values and (scope.function is None or not scope.function.binds(node.id)):
        found = scope.index.constant(scope.module, node.id)
        if found is not None:
            module, value = found
            within = Scope(scope.index, module, busy=within.busy)
            values = [value]
    known = [text for value in values for text in texts(value, within)]
    yield from known if known and any(map(is_worded, known)) else [(placeholder(node),)]


def _looked_up(node: ast.Subscript | ast.Call, scope: Scope) -> list[Text]:
    """Texts of a table of constants, or of a function of the package; empty if it is neither."""
    if isinstance(node, ast.Subscript):
        return _values_of_table(node.value, scope)
    if isinstance(node.func, ast.Name) and node.func.id == "str" and len(node.args) == 1:
        return texts(node.args[0], scope)
    if isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        found = _values_of_table(node.func.value, scope)
        return [*found, *texts(node.args[1], scope)] if found and len(node.args) > 1 else found
    function = scope.index.function(scope.module, scope.function, node.func)
    if function is None or scope.depth >= _DEPTH:
        return []
    found = [
        text
        for given in bindings(node, function, scope)
        for value in function.returned()
        for text in texts(value, entered(function, given, scope))
    ]
    return found if any(map(is_worded, found)) else []


def _values_of_table(node: ast.expr, scope: Scope) -> list[Text]:
    found = scope.index.constant(scope.module, node.id) if isinstance(node, ast.Name) else None
    if found is None or not isinstance(found[1], ast.Dict):
        return []
    table = Scope(scope.index, found[0])
    values = [text for value in found[1].values for text in texts(value, table)]
    return values if any(map(is_worded, values)) else []


def entered(function: Function, given: Mapping[str, Text], scope: Scope) -> Scope:
    """The scope within a function that is called."""
    return Scope(scope.index, function.module, function, given, scope.depth + 1)


def bindings(
    call: ast.Call, function: Function, scope: Scope, *, bound: bool | None = None
) -> list[dict[str, Text]]:
    """Texts of the parameters of a function that is called, one mapping for each combination."""
    method = function.is_method if bound is None else bound
    names = function.parameters[1:] if method else function.parameters
    found: dict[str, list[Text]] = {
        name: texts(value, Scope(scope.index, function.module))
        for name, value in function.defaults.items()
    }
    for name, argument in zip(names, call.args, strict=False):
        if isinstance(argument, ast.Starred):
            break
        found[name] = texts(argument, scope)
    for keyword in call.keywords:
        if keyword.arg is not None:
            found[keyword.arg] = texts(keyword.value, scope)
    if len(list(itertools.islice(itertools.product(*found.values()), MOST + 1))) > MOST:
        found = {name: values if len(values) == 1 else [(Placeholder(name, name),)]
                 for name, values in found.items()}  # fmt: skip
    return [dict(zip(found, chosen, strict=True)) for chosen in itertools.product(*found.values())]


def is_worded(text: Text) -> bool:
    """True if a text has words of its own."""
    return any(isinstance(part, str) and any(map(str.isalpha, part)) for part in text)


def _joined(text: Text) -> Text:
    """The same text with neighbouring literals in one piece."""
    result: list[Part] = []
    for part in text:
        if not isinstance(part, str):
            result.append(part)
        elif part and result and isinstance(result[-1], str):
            result[-1] += part
        elif part:
            result.append(part)
    return tuple(result)


def placeholder(node: ast.expr) -> Placeholder:
    """A placeholder named after what it stands for."""
    return Placeholder(_word(node) or "value", ast.unparse(node))


_SAME = {"str", "repr", "sorted", "list", "tuple", "set", "map", "quote", "fspath"}


def _word(node: ast.expr) -> str:
    match node:
        case ast.Name():
            return node.id.strip("_").lower()
        case ast.Attribute(attr="name" | "__name__" | "__qualname__" | "value" | "text"):
            owner = _word(node.value)
            return f"{owner} name" if owner and "name" in node.attr else owner or "value"
        case ast.Attribute():
            return node.attr.strip("_").lower()
        case ast.Subscript() | ast.Starred() | ast.Await():
            return _word(node.value)
        case ast.Call(func=ast.Attribute(attr="join"), args=[items]):
            return _word(items)
        case ast.Call(func=ast.Name(id="len"), args=[items]):
            return f"number of {_word(items)}" if _word(items) else "number"
        case ast.Call(func=ast.Name(id="type")):
            return "type"
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in _SAME:
            return _word(node.args[-1] if name == "map" else first)
        case ast.Call(func=ast.Attribute(value=owner)):
            return _word(owner)
        case ast.Call(args=[first, *_]):
            return _word(first)
        case ast.GeneratorExp() | ast.ListComp():
            return _word(node.generators[0].iter)
        case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]):
            return _word(first)
        case ast.BoolOp():
            return _word(node.values[0])
        case ast.BinOp():
            return _word(node.left) or _word(node.right)
    return ""
