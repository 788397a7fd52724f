"""Which kind of dump a path is: asked by names alone, readers are loaded for the kind it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ait_llm.dumps.api_place import find_api_places
from ait_llm.dumps.atb_place import find_place
from ait_llm.dumps.fx_place import find_fx_place
from ait_llm.dumps.ge_place import GePlace, build_graph_files, find_ge_place, graph_files
from ait_llm.dumps.kinds import explanations, file_kinds, kinds
from ait_llm.dumps.ptdbg_place import find_ptdbg_places
from ait_llm.dumps.torch_place import find_torch_place
from ait_llm.errors import FormatError

if TYPE_CHECKING:
    from ait_llm.dumps.api import ApiDump
    from ait_llm.dumps.atb import AtbDump
    from ait_llm.dumps.fx import FxDump
    from ait_llm.dumps.ge import GeDump
    from ait_llm.dumps.ptdbg import PtdbgDump
    from ait_llm.dumps.torch_modules import TorchDump


@kinds.register("api")
@file_kinds.register("api")
def _api(path: Path) -> ApiDump | None:
    places = find_api_places(path)
    if not places:
        return None
    from ait_llm.dumps.api import ApiDump

    return ApiDump(_folder(path), places)


@kinds.register("atb")
def _atb(path: Path) -> AtbDump | None:
    place = find_place(path)
    if place is None:
        return None
    from ait_llm.dumps.atb import AtbDump

    return AtbDump(place)


@kinds.register("fx")
def _fx(path: Path) -> FxDump | None:
    place = find_fx_place(path) if path.is_dir() else None
    if place is None:
        return None
    from ait_llm.dumps.fx import FxDump

    return FxDump(place)


@kinds.register("ge")
def _ge(path: Path) -> GeDump | None:
    place = find_ge_place(path) if path.is_dir() else None
    if place is None:
        return None
    from ait_llm.dumps.ge import GeDump

    return GeDump(place)


@kinds.register("ptdbg")
@file_kinds.register("ptdbg")
def _ptdbg(path: Path) -> PtdbgDump | None:
    places = find_ptdbg_places(path)
    if not places:
        return None
    from ait_llm.dumps.ptdbg import PtdbgDump

    return PtdbgDump(_folder(path), places)


@kinds.register("torch")
def _torch(path: Path) -> TorchDump | None:
    place = find_torch_place(path)
    if place is None:
        return None
    from ait_llm.dumps.torch_modules import TorchDump

    return TorchDump(place)


def _folder(path: Path) -> Path:
    """The folder that is meant by the path of one of its files."""
    path = path.absolute()
    return path if path.is_dir() else path.parent


def _graphs_alone(path: Path) -> FormatError | None:
    """Why a folder with graphs and nothing else is no dump."""
    place = GePlace(path, path)
    if not path.is_dir() or not (graph_files(place) or build_graph_files(place)):
        return None
    return FormatError(
        path,
        "holds graphs of the graph engine and no dump",
        "Set dump_config.enable_dump, and make sure that the model ran on a device",
    )


explanations.append(_graphs_alone)
