"""Launches of kernels in the Python program that Inductor generates, and code put around them.

The generated function ``call`` allocates buffers, launches kernels and frees buffers, a statement
each::

    buf1 = empty_strided_cpu((1, 7, 32), (224, 32, 1), torch.float32)
    cpp_fused_mul_silu_4(buf0, buf1)
    triton_poi_fused_mul_silu_4.run(buf0, buf1, 224, stream=stream0)
    extern_kernels.mm(buf1, arg3_1, out=buf2)
    buf3 = torch.ops.aten.sort.default(buf2)
    buf4 = buf3[0]

Names of variables are those of buffers. The text is only added to: no statement is changed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_FUNCTION = re.compile(r"call|partition_[0-9]+")
_PARAMETERS = re.compile(r"def \w+\(([^)]*)\)")
_MUTATED = re.compile(r"'mutated_arg_names': \[([^\]]*)\]")
# Calls that make, view or check buffers and launch nothing.
_NO_LAUNCH = re.compile(
    r"(empty_strided\w*|torch\.empty\w*|tracked_empty_strided|reinterpret_tensor|alloc_from_pool"
    r"|assert_\w+|get_raw_stream|del_|int|float|align|len|print"
    r"|\w+\.(clear|set_device|synchronize|as_strided|item|copy_args_to_cpu_if_needed))"
)
_OUTPUT_POINTERS = ("out_ptr", "in_out_ptr")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that may write buffers.

    Attributes:
        first, last: its lines, from 1.
        indent: the blanks before it.
        kernel: what is called; empty for one that picks a result of an earlier call.
        reads: all variables in it, in order of appearance.
        writes: variables that it certainly writes; None if the kernel does not say which.
        picks: the variable of whose results it picks one; empty for a call.
    """

    first: int
    last: int
    indent: str
    kernel: str
    reads: tuple[str, ...]
    writes: tuple[str, ...] | None
    picks: str = ""


@dataclass(frozen=True, slots=True)
class Return:
    """The end of ``call``.

    Attributes:
        line, indent: where it is, and the blanks before it.
        values: the expressions that it returns, and the variables in each.
    """

    line: int
    indent: str
    values: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Wrapper:
    """What was found in a generated program.

    Attributes:
        statements: launches in the order of the text.
        begins: line before which each function begins to work, with its blanks.
        ends: the ``return`` statements of ``call``.
    """

    statements: tuple[Statement, ...]
    begins: tuple[tuple[int, str], ...]
    ends: tuple[Return, ...]


def read_wrapper(source: str) -> Wrapper:
    """Find the launches in a generated program.

    Raises:
        SyntaxError: it is no Python program.
    """
    tree = ast.parse(source)
    kernels = _kernels(tree)
    statements: list[Statement] = []
    begins: list[tuple[int, str]] = []
    ends: list[Return] = []
    for function in _functions(tree):
        if function.name == "call":
            first = function.body[0]
            begins.append((first.lineno, " " * first.col_offset))
        for node in _plain_statements(function.body):
            if isinstance(node, ast.Return):
                if function.name == "call":
                    ends.append(_return(node))
            elif (found := _statement(node, kernels)) is not None:
                statements.append(found)
    statements.sort(key=lambda each: each.first)
    return Wrapper(tuple(statements), tuple(begins), tuple(ends))


def insert_lines(source: str, lines: Sequence[tuple[int, str]]) -> str:
    """Add lines to a text.

    Args:
        source: the text.
        lines: number of the line, from 1, before which each goes; those for one line stay in order.
    """
    found = source.split("\n")
    for _, (before, text) in sorted(enumerate(lines), key=lambda each: (-each[1][0], -each[0])):
        found.insert(before - 1, text)
    return "\n".join(found)


def shifted_line(line: int, lines: Sequence[tuple[int, str]]) -> int:
    """Where a line of the text is after :func:`insert_lines`."""
    return line + sum(1 for before, _ in lines if before <= line)


def _return(node: ast.Return) -> Return:
    given = node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else []
    values = tuple((ast.unparse(each), tuple(_names(each))) for each in given)
    return Return(node.lineno, " " * node.col_offset, values)


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """``call`` and its partitions, at the top or in a class."""
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        for member in members:
            if isinstance(member, ast.FunctionDef) and _FUNCTION.fullmatch(member.name):
                yield member


def _plain_statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.With):
            yield from _plain_statements(node.body)
        else:
            yield node


def _statement(node: ast.stmt, kernels: Mapping[str, frozenset[int]]) -> Statement | None:
    targets: tuple[str, ...] = ()
    if isinstance(node, ast.Assign):
        targets = tuple(name for each in node.targets for name in _names(each))
        value = node.value
    elif isinstance(node, ast.Expr):
        value = node.value
    else:
        return None
    place = node.lineno, node.end_lineno or node.lineno, " " * node.col_offset
    if isinstance(value, ast.Subscript) and targets:
        picked = next(iter(_names(value.value)), "")
        return Statement(*place, "", (picked,), targets, picked) if picked else None
    if not isinstance(value, ast.Call):
        return None
    callee = ast.unparse(value.func)
    if _NO_LAUNCH.fullmatch(callee):
        return None
    given = [*value.args, *(each.value for each in value.keywords)]
    reads = tuple(dict.fromkeys(name for each in given for name in _names(each)))
    name = callee.removesuffix(".run")
    return Statement(*place, name, reads, _writes(value, name, targets, kernels))


def _writes(
    call: ast.Call, kernel: str, targets: tuple[str, ...], kernels: Mapping[str, frozenset[int]]
) -> tuple[str, ...] | None:
    for keyword in call.keywords:
        if keyword.arg == "out":
            return (*targets, *_names(keyword.value))
    if kernel in kernels:
        places = kernels[kernel]
        given = [name for at, each in enumerate(call.args) if at in places for name in _names(each)]
        return (*targets, *given)
    return targets or None


def _names(node: ast.expr) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id


def _kernels(tree: ast.Module) -> dict[str, frozenset[int]]:
    """For each kernel that the program defines, which of its arguments it writes."""
    found: dict[str, frozenset[int]] = {}
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            continue
        target, call = node.targets[0], node.value
        if not isinstance(target, ast.Name):
            continue
        method = ast.unparse(call.func).rpartition(".")[2]
        if method in ("cpp_pybinding", "cpp"):
            types = ast.literal_eval(call.args[0]) if isinstance(call.args[0], ast.List) else []
            found[target.id] = frozenset(
                at for at, each in enumerate(types) if each.endswith("*") and "const" not in each
            )
        elif method == "triton" and len(call.args) > 1:
            text = call.args[1]
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[target.id] = _written_parameters(text.value)
        elif method == "multi_kernel" and len(call.args) > 1:
            choices = [name for name in _names(call.args[1]) if name in found]
            if choices:
                found[target.id] = found[choices[0]]
    return found


def _written_parameters(text: str) -> frozenset[int]:
    """Which parameters of a Triton kernel are written, by their names and what it says itself."""
    match = _PARAMETERS.search(text)
    names = [each.split(":")[0].strip() for each in match[1].split(",")] if match else []
    mutated = _MUTATED.search(text)
    said = set(re.findall(r"'(\w+)'", mutated[1])) if mutated else set()
    return frozenset(
        at for at, name in enumerate(names) if name.startswith(_OUTPUT_POINTERS) or name in said
    )
