"""Capture with the functions of ptdbg and in its format, over the capture of API calls."""

from ait_llm.dump.api.seeding import seed_all
from ait_llm.dump.ptdbg.session import (
    acc_cmp_dump,
    overflow_check,
    register_hook,
    set_backward_input,
    set_dump_path,
    set_dump_switch,
    set_overflow_check_switch,
    unregister_hook,
)

__all__ = [
    "acc_cmp_dump",
    "overflow_check",
    "register_hook",
    "seed_all",
    "set_backward_input",
    "set_dump_path",
    "set_dump_switch",
    "set_overflow_check_switch",
    "unregister_hook",
]
