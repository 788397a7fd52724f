"""Damaged copies of good files: bytes, tokens of text, values of JSON, cells of tables.

Everything is drawn from the generator that is passed in, so a seed and a number name one input.
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Rng: TypeAlias = random.Random
Mutate: TypeAlias = Callable[[Rng, bytes, Sequence[bytes]], bytes]

MAX_BYTES = 64 * 1024  # of a damaged copy: long enough to show what grows with the square
MAX_STACKED = 4  # changes of one copy
_DEEP = 3000  # more levels than any recursion allows

INTEGERS = tuple(
    sorted(
        {
            sign * (1 << bits) + more
            for bits in (0, 7, 8, 15, 16, 31, 32, 53, 63, 64)
            for sign in (1, -1)
            for more in (-1, 0, 1)
        }
    )
)
NUMBERS = (*map(str, INTEGERS), "1e999", "-1e999", "1e-999", "nan", "inf", "0x10", "1_0", "²", "٣")
WORDS = (
    *("", " ", "\0", "\ufeff", "\u2028", "\r", "\r\n", "\n\n", "\udcff", "é" * 300, "a" * 5000),
    *(
        "-",
        ".",
        "..",
        "/",
        "../../outside/secret.npy",
        "/etc/passwd",
        "~",
        "*",
        "%s",
        "{0}",
        "$HOME",
    ),
    *("None", "null", "true", "NaN", "-Infinity", "N/A", "[", "{", '"', "'", "\\", "\\u0000"),
    *("\\ud800", ",", ";", "|", ":", "=", "#", "//", "/*", "$End=1", "&a [*a]", "0_1", "1_0"),
    *("!!python/object:os.system x", "9" * 5000),  # more digits than Python converts
)
_TOKEN = re.compile(rb"[A-Za-z_]\w*|-?\d[\d.eE+-]*|\s+|.", re.DOTALL)


def mutate_bytes(rng: Rng, data: bytes, others: Sequence[bytes]) -> bytes:
    """One change that knows nothing of the format."""
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((1, 2, 4, 8, 16, 64, len(data))))
    match rng.randrange(9):
        case 0 if data:
            at = min(at, len(data) - 1)
            return data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :]
        case 1:
            return data[:at]
        case 2:
            return data[:at] + data[end:]
        case 3:
            return data[:at] + data[at:end] * rng.choice((2, 3, 100)) + data[end:]
        case 4:
            return data[:at] + rng.randbytes(rng.choice((1, 4, 16, 200))) + data[at:]
        case 5:
            other = rng.choice(others)
            return data[:at] + other[rng.randrange(len(other) + 1) :]
        case 6:
            return data[:at] + bytes((rng.choice((0, 1, 0x20, 0x7F, 0x80, 0xFF)),)) + data[at + 1 :]
        case 7:
            return data[:at] + varint(rng.choice(INTEGERS)) + data[at + rng.randrange(3) :]
    return _with_integer(rng, data)


def _with_integer(rng: Rng, data: bytes) -> bytes:
    """A limit of an integer type in place of some bytes, mostly in the first, where headers lie."""
    width = rng.choice((1, 2, 4, 8))
    stop = min(len(data), rng.choice((16, 64, 256, len(data))))
    at = rng.randrange(stop + 1)
    if rng.random() < 0.7:
        at -= at % width
    near = (len(data), len(data) - at, len(data) + 1)
    value = rng.choice((*INTEGERS, *near)) % (1 << 8 * width)
    return data[:at] + value.to_bytes(width, rng.choice(("little", "big"))) + data[at + width :]


def varint(value: int) -> bytes:
    """A whole number as protobuf writes it."""
    value %= 1 << 64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def mutate_text(rng: Rng, data: bytes, others: Sequence[bytes]) -> bytes:
    """One change of tokens: words, numbers, single characters."""
    tokens = _TOKEN.findall(data)
    if not tokens or rng.random() < 0.15:
        return mutate_bytes(rng, data, others)
    at = rng.randrange(len(tokens))
    match rng.randrange(8):
        case 0:
            del tokens[at]
        case 1:
            tokens.insert(at, tokens[rng.randrange(len(tokens))])
        case 2:
            tokens[at] = _word(rng)
        case 3:
            tokens.insert(at, _word(rng))
        case 4:
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        case 5:
            numbers = [place for place, token in enumerate(tokens) if token[:1].isdigit()]
            tokens[rng.choice(numbers or [at])] = rng.choice(NUMBERS).encode()
        case 6:
            end = at + rng.choice((1, 2, 3, 10, 100))
            tokens[at:end] = tokens[at:end] * rng.choice((2, 10, _DEEP))
        case 7:
            theirs = _TOKEN.findall(rng.choice(others)) or [b""]
            start = rng.randrange(len(theirs))
            tokens[at : at + rng.randrange(5)] = theirs[start : start + rng.choice((1, 5, 50))]
    return b"".join(tokens)


def _word(rng: Rng) -> bytes:
    return rng.choice(WORDS if rng.random() < 0.7 else NUMBERS).encode("utf-8", "surrogateescape")


def mutate_json(rng: Rng, data: bytes, others: Sequence[bytes]) -> bytes:
    """One value in place of another one, or a change of tokens."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return mutate_text(rng, data, others)
    if rng.random() < 0.2:
        return mutate_text(rng, data, others)
    return json.dumps(changed_value(rng, value)).encode()


def mutate_json_lines(rng: Rng, data: bytes, others: Sequence[bytes]) -> bytes:
    """A change of one line, or of the lines."""
    lines = data.splitlines(keepends=True)
    if not lines or rng.random() < 0.2:
        return mutate_text(rng, data, others)
    at = rng.randrange(len(lines))
    match rng.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines.insert(rng.randrange(len(lines)), lines[at])
        case _:
            end = b"\n" if lines[at].endswith(b"\n") else b""
            lines[at] = mutate_json(rng, lines[at], others).replace(b"\n", b" ") + end
    return b"".join(lines)


def changed_value(rng: Rng, value: Any) -> Any:
    """A value of JSON in which one place has another content."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        found = dict(value)
        match rng.randrange(12):
            case 0:
                del found[key]
            case 1:
                found[rng.choice(WORDS)] = found.pop(key)
            case 2:
                found[key] = found[rng.choice(list(value))]
            case _:
                found[key] = changed_value(rng, value[key])
        return found
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        found_list = list(value)
        match rng.randrange(12):
            case 0:
                del found_list[at]
            case 1:
                found_list.insert(at, found_list[rng.randrange(len(value))])
            case 2:
                found_list *= rng.choice((2, 100))
            case _:
                found_list[at] = changed_value(rng, value[at])
        return found_list
    return odd_value(rng)


def odd_value(rng: Rng) -> Any:
    """A value that a reader may not have expected."""
    match rng.randrange(10):
        case 0:
            return rng.choice(INTEGERS)
        case 1 | 2:
            return rng.choice(WORDS)
        case 3:
            return rng.choice(NUMBERS)
        case 4:
            return rng.choice((0.5, -0.0, 1e300, float("nan"), float("inf")))
        case 5:
            return rng.choice((None, True, False))
        case 6:
            return rng.choice(([], {}, [[]], [{}], {"": ""}, [None], [0] * 100, {"a": [1, "b"]}))
        case 7:
            deep: Any = []
            for _ in range(rng.choice((40, 200, 900))):
                deep = [deep] if rng.random() < 0.5 else {"children": deep}
            return deep
        case 8:
            return {rng.choice(WORDS): rng.choice(INTEGERS) for _ in range(3)}
    return rng.randrange(20)


def table_mutation(delimiter: str) -> Mutate:
    """Changes of the cells of a table."""

    def mutate(rng: Rng, data: bytes, others: Sequence[bytes]) -> bytes:
        if rng.random() < 0.3:
            return mutate_text(rng, data, others)
        text = data.decode("utf-8", "surrogateescape")
        try:
            rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
        except csv.Error:
            return mutate_text(rng, data, others)
        rows = [row for row in rows if row]
        if not rows:
            return mutate_text(rng, data, others)
        row = rows[rng.randrange(len(rows))]
        at = rng.randrange(len(row))
        match rng.randrange(8):
            case 0:
                del row[at]
            case 1:
                row.insert(at, row[at])
            case 2:
                rows.insert(rng.randrange(len(rows)), list(row))
            case 3:
                for each in rows:
                    del each[at : at + 1]
            case 4:
                row[at] = rng.choice(NUMBERS)
            case 5:
                row[at] += rng.choice(WORDS)
            case _:
                row[at] = rng.choice(WORDS)
        out = io.StringIO(newline="")
        table = csv.writer(out, delimiter=delimiter, lineterminator="\n", escapechar="\\")
        table.writerows(rows)
        return out.getvalue().encode("utf-8", "surrogateescape")

    return mutate


def damaged(rng: Rng, seeds: Sequence[bytes], mutate: Mutate) -> bytes:
    """A copy of one seed with up to four changes; sometimes the seed itself."""
    data = rng.choice(seeds)
    for _ in range(rng.randrange(MAX_STACKED + 1)):
        data = mutate(rng, data, seeds)[:MAX_BYTES]
    return data
