"""The sentences that say what the code of a module does otherwise than golden's."""

from __future__ import annotations

from collections.abc import Sequence

from ait_llm.compare.origin_attention import WrongFormula
from ait_llm.compare.origin_between import Between
from ait_llm.compare.origin_rewired import LeftOut, Rewired
from ait_llm.compare.origin_run import path_of
from ait_llm.compare.origin_sums import WrongSum
from ait_llm.compare.origin_unchanged import Unchanged
from ait_llm.compare.origin_values import RunValues
from ait_llm.compare.origin_words import first_that_fails, name_of, off_by, title_of
from ait_llm.dumps.model import Operation
from ait_llm.program.roles import is_operator


def by_own_code(values: RunValues, found: Between, difference: str = "") -> str:
    """A module's own code makes something else than golden's."""
    module = name_of(values, found.op)
    inputs = f"{len(found.agreeing)} compared values that it gets and makes before agree"
    start = _member(values, found, found.before)
    if found.after is None:
        where = f"behind `{start}`" if start else "alone"
    elif start:
        where = f"between `{start}` and `{_member(values, found, found.after)}`"
    else:
        where = f"before `{_member(values, found, found.after)}`"
    text = (
        f"the code of `{module}`, {where}: {inputs}, and {_made(values, found)} does not"
        f"{off_by(values, found.value)}"
    )
    if difference and values.is_index(found.value):  # positions, say
        text += f": {difference}"
    if any(is_operator(each) for each in values.run.operations):
        return text
    return f"{text}; look inside with ait llm dump --type torch-op --module-name '{module}'"


def by_other_mask(values: RunValues, op: int, text: str, failed: int) -> str:
    """An attention hides other places than golden's."""
    first = first_that_fails(values, failed)
    return f"the code of `{name_of(values, op)}`: {text}; {first}"


def by_other_wiring(values: RunValues, found: Rewired, failed: int) -> str:
    """An operator reads what another operation makes than in golden's code."""
    operations = values.run.operations
    reader, reads = _call(operations[found.op]), _call(operations[found.reads])
    text = f"the code of `{path_of(operations[found.op])}`"
    if found.lacks:
        text = f"the code of `{path_of(found.lacks[-1])}` leaves out {_named(found.lacks)}"
    text += f": `{reader}` reads what `{reads}`"
    right = _call(found.should_read)
    if right == reads and found.moves != found.should_move:
        ways = (
            " and ".join(f"`{each}`" for each in way) for way in (found.moves, found.should_move)
        )
        mine, golden = (each or "nothing" for each in ways)
        text += f" makes through {mine} instead of {golden}"
    elif right != reads:
        text += f" makes, and golden's reads what `{right}` makes"
    else:
        module = path_of(found.should_read)
        text += f" makes, and golden's reads what that of `{module}` makes"
    return f"{text}; {first_that_fails(values, failed)}"


def by_left_out(values: RunValues, found: LeftOut, failed: int) -> str:
    """Golden's code does something more with a value before it hands it on."""
    module, member = found.module, values.owner(found.op)
    operation = values.run.operations[found.op]
    what = f"`{_call(operation)}`"
    if member != module:
        what += f" of `{name_of(values, member)}`"
    code = name_of(values, module)
    if module == found.op:  # operators alone, named by their modules
        code = path_of(found.lacks[-1])
    lacking = _named(found.lacks)
    return (
        f"the code of `{code}` leaves out {lacking}: it hands on what {what} makes, and golden's "
        f"makes {lacking} of it first; {first_that_fails(values, failed)}"
    )


def by_added(values: RunValues, added: Sequence[int], failed: int) -> str:
    """My code does something more with a value before it hands it on."""
    operations = [values.run.operations[op] for op in added]
    return (
        f"the code of `{path_of(operations[-1])}` computes {_named(operations)} as well: what "
        "that reads agrees, and golden's hands it on as it is; "
        f"{first_that_fails(values, failed)}"
    )


def by_handed(
    values: RunValues, code: str, reader: int, maker: int | None, place: str, distance: float
) -> str:
    """Code hands another value to what reads it than golden's hands to a module."""
    made = "comes in from outside" if maker is None else f"`{_full(values, maker)}` makes"
    return (
        f"the code of `{code}`: `{_full(values, reader)}` reads what {made}, and golden's "
        f"`{place}` is handed another value ({distance:.2g} relative error between the two)"
    )


def by_handing_on(values: RunValues, code: str, op: int) -> str:
    """Code hands on what golden's makes something else of first."""
    return (
        f"the code of `{code}`: it hands on what `{_full(values, op)}` makes, which agrees, and "
        "golden's makes another value of it"
    )


def by_unchanged(values: RunValues, found: Unchanged) -> str:
    """One side's module hands on what its last member makes, and the other's changes it first."""
    module, member = (name_of(values, each) for each in (found.module, found.member))
    changes = f"makes another value of it ({max(found.golden, found.mine):.2g} relative error)"
    least = min(found.golden, found.mine)
    hands = "hands it on" + (f" ({least:.2g})" if least else " to the bit")
    mine, golden = (hands, changes) if found.golden > found.mine else (changes, hands)
    return (
        f"the code of `{module}`, behind `{member}`, whose results agree: it {mine}, and "
        f"golden's {golden}"
    )


def by_code_up_to(values: RunValues, code: str, op: int) -> str:
    """Operators of mine make what the code of golden's module, which shows none, does not."""
    return (
        f"the code of `{code}`: what it makes of values that agree, up to `{_full(values, op)}`, "
        "is not what golden's code makes in its place"
    )


def by_other_sum(values: RunValues, found: WrongSum) -> str:
    """Golden's code adds two values to the last bit, and mine does not."""
    *terms, last = (title_of(values, each) for each in found.terms)
    module, total = name_of(values, found.module), title_of(values, found.value)
    place = ", ".join(map(str, found.stray.place))
    return (
        f"the code of `{module}`: golden's {total} is "
        f"the sum of {', '.join(terms)} and {last} to the last bit, and mine is not: [{place}] is "
        f"{found.stray.value:.6g} and should be {found.stray.right:.6g}"
    )


def by_other_formula(values: RunValues, found: WrongFormula) -> str:
    """Golden's code computes a formula as far as rounding permits, and mine does not."""
    module, off = name_of(values, found.module), found.distance
    where = f"between `{found.before}` and `{found.after}`"
    if not found.after:
        where = f"behind `{found.before}`"
    place = ", ".join(map(str, off.place))
    return (
        f"the code of `{module}`, {where}: golden's {found.result.name} of "
        f"{found.after or module} is {found.what}, as far as rounding "
        f"permits, and mine is not: its errors are {off.deviations:.2g} times as large "
        f"as those of rounding every step; [{place}] is {off.value:.6g} and should be "
        f"{off.right:.6g}"
    )


def _call(operation: Operation) -> str:
    """``aten.mul.Tensor@4``: an operator within its module, and which call of it."""
    _, dot, rest = operation.name.partition(".aten.")
    name = f"aten.{rest}" if dot else operation.name
    return f"{name}@{operation.call}" if operation.call else name


def _full(values: RunValues, op: int) -> str:
    """An operation by its whole name, and which call of it."""
    operation = values.run.operations[op]
    return f"{operation.name}@{operation.call}" if operation.call else operation.name


def _named(operations: Sequence[Operation]) -> str:
    return " and ".join(f"`{_call(each)}`" for each in operations)


def _made(values: RunValues, found: Between) -> str:
    """``intensor1 (attention_mask) of model.layers.0``, as the member behind it reads it."""
    uses = values.flow.values[found.value].reads
    use = next((use for use in uses if use.op == found.after), None)
    if use is None:
        return title_of(values, found.value)
    label = use.tensor.ir_name or ""
    known = f" ({label})" if label and not label.isdigit() else ""
    return f"{use.tensor.name}{known} of {name_of(values, use.op)}"


def _member(values: RunValues, found: Between, op: int | None) -> str:
    """The name of a member within its module; empty without one."""
    return "" if op is None else name_of(values, op).removeprefix(f"{name_of(values, found.op)}.")
