"""The operator ``ait_llm::tap``, which reports values from where a compiled graph computes them.

Python hooks do not run inside a compiled graph, operators do. A tap reads its values, returns
nothing, and changes nothing. Its schema says that it writes to a tensor which nobody reads, the
clock: so no compiler may leave it out, run it twice, or let two taps change places. It runs where
the graph reaches it, or, where a device graph is recorded, when that is replayed
(:mod:`ait_llm.dump.taps.replays`).
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ait_llm.core.notices import notice

SCHEMA = (
    "(Tensor[] values, Tensor(a!) clock, str capture, str event, str path, str[] names, "
    "str[] texts) -> ()"
)
"""``names`` has one name for each value; ``texts`` are ``name=value`` of what is no tensor."""

CLOCKS: dict[str, Tensor] = {}
"""By device. Compiled code finds them here when it is called, with or without a capture."""

ENTER_ROOT, ENTER, LEAVE, LEAVE_ROOT = "enter_root", "enter", "leave", "leave_root"
ENTER_OPERATOR, LEAVE_OPERATOR = "enter_operator", "leave_operator"
"""Of these, ``path`` is the operator's name, and ``texts`` have values as ``repr`` writes them."""


class Receiver(Protocol):
    """What is told of the taps of a model."""

    @property
    def is_tapping(self) -> bool:
        """False while nothing of it is recorded."""

    @property
    def wants_numbers_only(self) -> bool:
        """True if statistics are recorded and no values."""

    def tapped(
        self, event: str, path: str, values: Sequence[tuple[str, object]], texts: Sequence[str]
    ) -> None:
        """A compiled graph reached a tap."""


_receivers: weakref.WeakValueDictionary[str, Receiver] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_library: list[torch.library.Library] = []
_said: set[str] = set()


def is_available() -> bool:
    """True if this torch can have such an operator in its graphs."""
    return hasattr(torch.library, "custom_op")


def register(receiver: Receiver, device: torch.device, *, operators: bool = False) -> str:
    """The number, as text, by which taps call a receiver, as long as that lives.

    Args:
        receiver: is told of its taps.
        device: where its values are.
        operators: graphs with its taps get some around their operators, too.
    """
    from ait_llm.dump.taps import operators as around
    from ait_llm.dump.taps import replays

    replays.watch_graphs()
    if is_available():
        _define()
        _clock(device)
        _clock(torch.device("cpu"))
    # a dynamic graph would take an int for a size
    number = around.number_for(str(next(_numbers)), operators=operators)
    _receivers[number] = receiver
    return number


def receiver_of(number: str) -> Receiver | None:
    """Who is called by that number; None once it is gone."""
    return _receivers.get(number)


def deliver(
    number: str, event: str, path: str, values: Sequence[tuple[str, object]], texts: Sequence[str]
) -> None:
    """Tell the receiver; a failure of ours is said once and is never the program's."""
    receiver = receiver_of(number)
    if receiver is None or not receiver.is_tapping:
        return
    try:
        receiver.tapped(event, path, values, texts)
    except Exception as error:  # noqa: BLE001 - whatever fails here must not fail the program
        reason = f"{type(error).__name__}: {error}"
        if reason not in _said:
            _said.add(reason)
            notice(f"{path} in compiled code is not captured: {reason}")


def clock_name(device: torch.device) -> str:
    """The key of a device in :data:`CLOCKS`."""
    return f"{device.type}:{device.index or 0}"


def _clock(device: torch.device) -> None:
    if clock_name(device) not in CLOCKS and device.type != "meta":
        with torch.inference_mode(mode=False):  # models are often found within inference mode
            CLOCKS[clock_name(device)] = torch.zeros(1, dtype=torch.int32, device=device)


def _define() -> None:
    if _library:
        return
    from ait_llm.dump.taps import inductor, operators, replays

    library: Any = torch.library.Library("ait_llm", "FRAGMENT")  # type: ignore[no-untyped-call]
    compliant = getattr(torch.Tag, "pt2_compliant_tag", None)  # PyTorch has it since 2.2
    library.define(f"tap{SCHEMA}", **({} if compliant is None else {"tags": compliant}))
    library.impl("tap", replays.tap, "CompositeExplicitAutograd")
    if hasattr(torch.library, "register_fake"):
        torch.library.register_fake("ait_llm::tap", _nothing, lib=library)
    else:  # before PyTorch 2.4
        torch.library.impl_abstract(  # type: ignore[no-untyped-call]
            "ait_llm::tap", _nothing, lib=library
        )
    _library.append(library)
    inductor.prepare(torch.ops.ait_llm.tap.default)
    operators.prepare(torch.ops.ait_llm.tap.default, ENTER_OPERATOR, LEAVE_OPERATOR)


def _nothing(*arguments: object) -> None:
    """What the operator does where there is no data."""
