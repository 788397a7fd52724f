"""ctypes declarations of the graph runtime's C API (``ait_llm/native/hostatb/hostatb.h``)."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from functools import lru_cache
from typing import Any

from ait_llm.hostatb.native_library import find_library

MAX_DIMS = 8


class Desc(ctypes.Structure):
    _fields_ = [  # ctypes wants a plain list
        ("dtype", c_int32),
        ("format", c_int32),
        ("ndim", c_uint32),
        ("dims", c_int64 * MAX_DIMS),
    ]


class Tensor(ctypes.Structure):
    _fields_ = [("desc", Desc), ("data", c_void_p), ("size", c_uint64)]


InferShape = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint32, POINTER(Desc), c_uint32, POINTER(Desc))
PlanKernels = ctypes.CFUNCTYPE(
    c_int, c_void_p, c_void_p, c_uint32, POINTER(Desc), c_uint32, POINTER(Desc)
)
Run = ctypes.CFUNCTYPE(
    c_int, c_void_p, c_uint32, c_uint32, POINTER(Tensor), c_uint32, POINTER(Tensor)
)
Accept = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint32, POINTER(Desc), c_uint32, POINTER(Desc))
ReshapeInput = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint32, POINTER(Desc))


class Callbacks(ctypes.Structure):
    _fields_ = [
        ("user", c_void_p),
        ("infer_shape", InferShape),
        ("plan", PlanKernels),
        ("run", Run),
        ("accept", Accept),
    ]


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The loaded ``libatb.so``, with the C API declared; loaded once per process.

    It is loaded with global visibility after anything in ``LD_PRELOAD``, so that a preloaded
    probe replaces its ``atb::Probe`` functions.

    Raises:
        ProbeError: no ``libatb.so`` of this package is found or it cannot be loaded.
    """
    lib = ctypes.CDLL(str(find_library()), mode=ctypes.RTLD_GLOBAL)
    ids = POINTER(c_uint32)
    names = POINTER(c_char_p)
    descs, tensors = POINTER(Desc), POINTER(Tensor)
    signatures: dict[str, tuple[Any, list[Any]]] = {  # ctypes types have no common public base
        "hostatb_plan_add_kernel": (
            c_int,
            [c_void_p, c_char_p, c_char_p, c_char_p, c_uint64, c_uint32, ids, c_uint32, ids],
        ),
        "hostatb_plan_add_workspace": (c_int, [c_void_p, descs]),
        "hostatb_raise_float_status": (None, []),
        "hostatb_leaf_create": (
            c_void_p,
            [c_char_p, c_char_p, c_uint32, names, c_uint32, names, c_int, POINTER(Callbacks)],
        ),
        "hostatb_graph_create": (c_void_p, [c_char_p, c_uint32, c_uint32, c_uint32]),
        "hostatb_graph_add_node": (
            c_int,
            [c_void_p, c_void_p, c_uint32, ids, c_uint32, ids, ReshapeInput, c_void_p],
        ),
        "hostatb_context_create": (c_void_p, [c_int32]),
        "hostatb_context_set_stream": (c_int, [c_void_p]),
        "hostatb_context_set_launch_mode": (c_int, [c_void_p, c_int]),
        "hostatb_context_destroy": (None, [c_void_p]),
        "hostatb_infer_shape": (c_int, [c_void_p, c_uint32, descs, c_uint32, descs]),
        "hostatb_setup": (c_int, [c_void_p, c_void_p, c_uint32, tensors, c_uint32, tensors]),
        "hostatb_execute": (c_int, [c_void_p, c_void_p, c_uint32, tensors, c_uint32, tensors]),
        "hostatb_operation_destroy": (None, [c_void_p]),
        "hostatb_report_model": (c_int, [c_char_p, c_char_p]),
        "hostatb_last_error": (c_char_p, []),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype = result
        function.argtypes = arguments
    return lib
