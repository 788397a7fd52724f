"""One folder, one dump: what a run left on disk, whatever tool wrote it."""

from ait_llm.dumps.api import ApiDump  # each kind registers itself
from ait_llm.dumps.atb import AtbDump
from ait_llm.dumps.describe import Row, describe, describe_file
from ait_llm.dumps.fx import FxDump
from ait_llm.dumps.ge import GeDump
from ait_llm.dumps.io_table import IoRow, IoTable, IoTensor, read_io_table
from ait_llm.dumps.kinds import kinds, open_dump
from ait_llm.dumps.lazy import Lazy, LazyMapping
from ait_llm.dumps.ledger import Ledger, LedgerEntry, read_ledger
from ait_llm.dumps.model import (
    Dump,
    Identity,
    Kernel,
    Loss,
    Operation,
    Process,
    Tensor,
    TopologyFile,
    Traits,
)
from ait_llm.dumps.ptdbg import PtdbgDump
from ait_llm.dumps.tensor_files import TensorFile
from ait_llm.dumps.tensors import Described, Source
from ait_llm.dumps.torch_modules import TorchDump

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
    "describe",
    "describe_file",
    "kinds",
    "open_dump",
    "read_io_table",
    "read_ledger",
]
