"""Inputs on which a reader once broke its promise, made small by hand: the target and the file."""

from __future__ import annotations

import json

from table_targets import JOURNAL_HEADER

_DIGITS = b"9" * 5000  # Python refuses to convert that many
_GE_OP = b'op { name: "a" type: "B" output_desc { attr { key: "_meta" value { s: "%s" } } } }'
_FX_NODE = {"name": "a", "op": "call_function", "target": "t", "inputs": 0.5}
_BASELINE = b'{"standard": "", "rerun": "", "problems": [], "partial": false, "outputs": [%s]}'

REGRESSIONS: tuple[tuple[str, bytes], ...] = (
    # a number with thousands of digits was no AitError
    ("ge_graph_text", _GE_OP % b"Tensor(dtype=torch.float16, shape=torch.Size([%s]))" % _DIGITS),
    ("fx_code", b'# File "a", line %s\n' % _DIGITS),
    ("dump_data_files", b'{"x": {"%s": ["a.npy", "b.npy"]}}' % _DIGITS),
    (
        "ledger",
        json.dumps({"kind": "header", "schema": 1}).encode() + b"\n"
        b'{"kind": "op", "op": "0_%s", "state": "saved"}\n' % _DIGITS,
    ),
    ("ptdbg_lines", b'["Tensor_add_1_forward_input.%s", 1, [], "x", [], []]\n' % _DIGITS),
    ("capture_config", b'{"dump_path": "/tmp/x", "step": ["%s-9"]}' % _DIGITS),
    # values of another type than the reader thought of
    ("fx_graph", json.dumps({"schema": 1, "nodes": [_FX_NODE]}).encode()),
    ("opcheck_journal", b'{"kind": "header", "schema": 1, "options": 0.5}\n'),
    ("opcheck_journal", JOURNAL_HEADER + b'{"outputs": ["x"]}\n'),
    ("capture_config", b'{"task": {}, "dump_path": "/tmp/x"}'),
    ("model_config", b'{"hidden_size": "x", "hidden_act": "gelu"}'),
    ("opcheck_baseline", _BASELINE % b'{"op_id": {}, "op_type": "x", "verdict": "PASS"}'),
    ("opcheck_baseline", _BASELINE % b'{"op_id": "0", "op_type": 1, "verdict": "PASS"}'),
    ("capsule_json", b'{"calls": 0.5}'),
    ("capsule_json", b"\xff"),
    ("capsule_safetensors", bytes(8)),
    ("capsule_safetensors", b"\x02\0\0\0\0\0\0\0[]"),
    # a value where a message belongs
    ("ge_graph_text", b'op { name: "a" type: "B" attr: "abcd" }'),
    ("ge_graph_text", b'op { name: "a" type: "B" output_desc: "x" }'),
    ("ge_graph_text", b'op { name: "a" type: "B" output_desc: [1, 2] }'),
    # infinity and huge numbers where counts are
    ("opcheck_journal", JOURNAL_HEADER + b'{"outputs": [{"verdict": "PASS", "shape": [1e999]}]}\n'),
    ("capture_config", b'{"dump_path": "/tmp/x", "statistics": {"slice": [{"dim": 1e999}]}}'),
    (
        "op_mapping",
        b'{"schema": "ait-llm-mapping", "version": 1, "pairs": [{"confidence": 1%s}]}'
        % (b"0" * 400),
    ),
    # the error did not say which file
    ("capture_config", b'{"dump_path": "/tmp/x", "level": "L9"}'),
    # deeper than Python recurses
    ("ledger_of_launcher", b"[" * 100000 + b"\n"),
    ("capture_config", b"[" * 100000),
    # a cell longer than the csv module takes
    ("rank_table", b"NPU Name,Cosine\n" + b"a" * 140000 + b",1\n"),
    ("api_check_details", b'"' + b"a" * 140000),
    # a small file for which the whole limit was reserved: up to 1 GiB
    ("ge_statistics", b"a"),
    ("ge_mapping", b"1,a"),
    ("op_mapping", b"{}"),
    ("atb_params", b"{}"),
    ("atb_layer", b"{}"),
    ("fx_types", b"{}"),
    ("fx_kernels", b"{}"),
    ("torch_tree", b"{}"),
    ("api_check_results", b"a\n"),
    ("api_check_details", b"a\n"),
    ("check_config", b"{}"),
    ("compare_file", b"{}"),
    ("data_mapping", b"a: b"),
    ("dump_data_files", b"{}"),
    # a length within a pickle was reserved before it was read: up to 4 GiB
    ("torch_file", b"\x80\x02X\0\0\0\x30abc"),
    ("torch_file_mapped", b"\x80\x02X\0\0\0\x30abc"),
    ("compare_file", b'{"npu_path": ' + b"1" * 5000 + b"}"),
    (
        "capture_config",
        b'{"dump_path": "/tmp/x", "task": "statistics", "statistics": {"slice": 1}}',
    ),
    # an error as long as a cell
    (
        "api_check_results",
        b'API name,Forward Test Success,Backward Test Success,Message\n"\n",'
        + b"b" * 5000
        + b",c,d\n",
    ),
    ("torch_settings", b'{"' + b"9" * 5000 + b'\\n": 1}'),
    ("dump_data_files", b'{"x": {"0": ["' + b"9" * 5000 + b'", "a.bin"]}}'),
    ("dump_data_files", b'{"x": {"0": ["", "a.bin"]}}'),
    # damaged XML within a sound zip file
    ("rank_workbook", b"PK\x05\x06" + bytes(18)),
)
