"""All benchmarks, in the order of the published page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bench:
    """One program of this folder.

    Attributes:
        name: of the file, and of the bench in ``--only``; a suffix after a colon tells two runs of
            one program apart.
        title: what it measures.
        options: for a full run.
        quick: instead of them for a look at whether all still works.
        peer: it takes ``--peer-python``.
        directory: its option for the folder of temporary files; empty if it has none.
    """

    name: str
    title: str
    options: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    peer: bool = False
    directory: str = ""

    @property
    def program(self) -> str:
        """Name of the file in this folder."""
        return f"{self.name.partition(':')[0]}.py"


BENCHES = (
    Bench(
        "probe", "The probe: capturing ATB operations", quick=("--repeat", "1"), directory="--dir"
    ),
    Bench(
        "torch_capture",
        "Capturing PyTorch modules, operators and API calls",
        ("--repetitions", "1"),
        quick=("--repetitions", "1", "--steps", "2", "--dtypes", "float32", "--levels", "L0"),
        peer=True,
        directory="--directory",
    ),
    Bench("metrics", "The metric kernel", quick=("--megabytes", "64", "--types", "fp16,bf16,fp32")),
    Bench(
        "compare",
        "Comparing two dumps",
        ("--peer-share", "0.25"),
        ("--gigabytes", "0.3", "--small", "2000", "--times", "1", "--peer-share", "0.1"),
        peer=True,
        directory="--dir",
    ),
    Bench(
        "api_compare",
        "Comparing API-level dumps",
        quick=("--gigabytes", "0.1", "--calls", "2000", "--times", "1"),
        peer=True,
        directory="--directory",
    ),
    Bench(
        "api_compare:large",
        "Comparing dump.json files of gigabytes",
        ("--cases", "--large-json", "2"),
        ("--cases", "--large-json", "0.05"),
        directory="--directory",
    ),
    Bench(
        "convert",
        "Converting a capture",
        quick=("--files", "400", "--times", "1"),
        directory="--directory",
    ),
    Bench(
        "fault_matrix",
        "Which operator is wrong: faults of hostatb without a mapping file",
        ("--deep",),
        (),
    ),
    Bench("ledger", "Which operator is wrong: the error ledger"),
    Bench(
        "deep",
        "Recomputing every operator of a comparison",
        quick=("--layers", "1", "--dtypes", "float32"),
        directory="--directory",
    ),
    Bench(
        "opcheck",
        "Checking operators",
        ("--layers", "8", "--dedupe"),
        ("--layers", "1", "--hidden", "1024"),
        directory="--directory",
    ),
    Bench("opcheck_contract", "What the contract standard costs beside the classic one"),
    Bench(
        "sweep_healthy",
        "Sweeping kernels that are right",
        quick=("--no-compiler", "add", "softmax", "layer_norm"),
    ),
    Bench(
        "replay",
        "Replaying a captured graph",
        quick=("--hidden", "1024", "--repeat", "1"),
        directory="--dir",
    ),
    Bench(
        "ge_read",
        "Reading dumps of the graph engine",
        quick=("--gigabytes", "0.1", "--repeat", "1"),
        peer=True,
        directory="--folder",
    ),
    Bench("ge_graph", "Reading graphs of the graph engine", quick=("--megabytes", "20")),
    Bench(
        "ge_graph:pbtxt",
        "The same as pbtxt",
        ("--form", "pbtxt"),
        ("--form", "pbtxt", "--megabytes", "20"),
    ),
    Bench(
        "storage",
        "Comparing dumps in an object store",
        quick=("--gigabytes", "0.05", "--times", "1"),
        directory="--directory",
    ),
    Bench(
        "engine",
        "Comparing on worker processes of Ray",
        quick=("--ranks", "4", "--megabytes", "20", "--times", "1"),
        directory="--dir",
    ),
    Bench(
        "engine",
        "Comparing on worker processes of Ray",
        quick=("--ranks", "2", "--megabytes", "20", "--times", "1"),
        directory="--dir",
    ),
    Bench(
        "storage",
        "Comparing dumps in an object store",
        quick=("--gigabytes", "0.05", "--times", "1"),
        directory="--directory",
    ),
    Bench(
        "match_programs",
        "Building two programs and matching them",
        quick=("--operations", "2000"),
    ),
    Bench(
        "growth",
        "How cost grows with operators, tokens, ranks and tensor size",
        ("--repeat", "1"),
        quick=("--scale", "0.1", "--repeat", "1"),
        directory="--directory",
    ),
)
