"""One folder, one dump: what a run left on disk, whatever tool wrote it.

Names are loaded when first used: no command wants readers of every kind of dump.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ait_llm.dumps import openers  # noqa: F401  each kind registers itself
from ait_llm.dumps.kinds import kinds, open_dump
from ait_llm.on_demand import on_demand

if TYPE_CHECKING:
    from ait_llm.dumps.api import ApiDump as ApiDump
    from ait_llm.dumps.atb import AtbDump as AtbDump
    from ait_llm.dumps.describe import Row as Row
    from ait_llm.dumps.describe import describe_file as describe_file
    from ait_llm.dumps.fx import FxDump as FxDump
    from ait_llm.dumps.ge import GeDump as GeDump
    from ait_llm.dumps.io_table import IoRow as IoRow
    from ait_llm.dumps.io_table import IoTable as IoTable
    from ait_llm.dumps.io_table import IoTensor as IoTensor
    from ait_llm.dumps.io_table import read_io_table as read_io_table
    from ait_llm.dumps.lazy import Lazy as Lazy
    from ait_llm.dumps.lazy import LazyMapping as LazyMapping
    from ait_llm.dumps.ledger import Ledger as Ledger
    from ait_llm.dumps.ledger import LedgerEntry as LedgerEntry
    from ait_llm.dumps.ledger import read_ledger as read_ledger
    from ait_llm.dumps.model import Dump as Dump
    from ait_llm.dumps.model import Identity as Identity
    from ait_llm.dumps.model import Kernel as Kernel
    from ait_llm.dumps.model import Loss as Loss
    from ait_llm.dumps.model import Operation as Operation
    from ait_llm.dumps.model import Process as Process
    from ait_llm.dumps.model import Tensor as Tensor
    from ait_llm.dumps.model import TopologyFile as TopologyFile
    from ait_llm.dumps.model import Traits as Traits
    from ait_llm.dumps.ptdbg import PtdbgDump as PtdbgDump
    from ait_llm.dumps.tensor_files import TensorFile as TensorFile
    from ait_llm.dumps.tensors import Described as Described
    from ait_llm.dumps.tensors import Source as Source
    from ait_llm.dumps.torch_modules import TorchDump as TorchDump

__all__ = [
    "ApiDump",
    "AtbDump",
    "Described",
    "Dump",
    "FxDump",
    "GeDump",
    "Identity",
    "IoRow",
    "IoTable",
    "IoTensor",
    "Kernel",
    "Lazy",
    "LazyMapping",
    "Ledger",
    "LedgerEntry",
    "Loss",
    "Operation",
    "Process",
    "PtdbgDump",
    "Row",
    "Source",
    "Tensor",
    "TensorFile",
    "TopologyFile",
    "TorchDump",
    "Traits",
    "describe_file",
    "kinds",
    "open_dump",
    "read_io_table",
    "read_ledger",
]

__getattr__ = on_demand(
    __name__,
    {
        "ApiDump": "ait_llm.dumps.api",
        "AtbDump": "ait_llm.dumps.atb",
        "Described": "ait_llm.dumps.tensors",
        "Dump": "ait_llm.dumps.model",
        "FxDump": "ait_llm.dumps.fx",
        "GeDump": "ait_llm.dumps.ge",
        "Identity": "ait_llm.dumps.model",
        "IoRow": "ait_llm.dumps.io_table",
        "IoTable": "ait_llm.dumps.io_table",
        "IoTensor": "ait_llm.dumps.io_table",
        "Kernel": "ait_llm.dumps.model",
        "Lazy": "ait_llm.dumps.lazy",
        "LazyMapping": "ait_llm.dumps.lazy",
        "Ledger": "ait_llm.dumps.ledger",
        "LedgerEntry": "ait_llm.dumps.ledger",
        "Loss": "ait_llm.dumps.model",
        "Operation": "ait_llm.dumps.model",
        "Process": "ait_llm.dumps.model",
        "PtdbgDump": "ait_llm.dumps.ptdbg",
        "Row": "ait_llm.dumps.describe",
        "Source": "ait_llm.dumps.tensors",
        "Tensor": "ait_llm.dumps.model",
        "TensorFile": "ait_llm.dumps.tensor_files",
        "TopologyFile": "ait_llm.dumps.model",
        "TorchDump": "ait_llm.dumps.torch_modules",
        "Traits": "ait_llm.dumps.model",
        "describe_file": "ait_llm.dumps.describe",
        "read_io_table": "ait_llm.dumps.io_table",
        "read_ledger": "ait_llm.dumps.ledger",
    },
)
