"""Refusals of a checkout of a few lines through hostatb, and what is put down to the vendor."""

from __future__ import annotations

from pathlib import Path

import pytest
from vendor.cases import CASES
from vendor_checkout import HEAD, LINE, checkout, run

SCATTER = (
    '1|x|ReduceScatterVOperation|{"rank":0,"rankSize":1,"backend":"hccl","reduceType":"sum"}|5|'
    "float16;int64;int64;int64;float16|nd;nd;nd;nd;nd|10,50;2;2;1;5|1|float16|nd|5,50|"
    "random|0,1||||||Ascend910B|C:ERROR_INVALID_PARAM"
)
RING = (
    '1|x|RingMLAOperation|{"headNum":4,"kvHeadNum":4,"qkScale":0.2,"calcType":1,"maskType":1,'
    '"kernelType":1}|7|float16;float16;float16;float16;float16;float16;int32|nd;nd;nd;nd;nd;nd;nd|'
    "9,4,128;9,4,64;8,4,128;8,4,64;8,4,128;512,512;1|2|float16;float|nd;nd|9,4,128;4,9|"
    "random;random;random;random;random;random;random|||||||Ascend910B|S:ERROR_INVALID_PARAM"
)
RING_GENERATOR = """
class RingMLAOperation(DataGen):
    @staticmethod
    def random(shape, datatype, format, span, params):
        return torch.zeros(shape)
    @staticmethod
    def case_preprocess(params, operation, inputs):
        {}
"""
FALSE, STATUS = "return false;", "return atb::ERROR_INVALID_PARAM;"


def folder(path: Path, *lines: str) -> Path:
    """A checkout with these cases."""
    (checkout(path) / CASES / "some.csv").write_text("\n".join((HEAD, *lines)), encoding="utf-8")
    return path


def test_an_empty_tensor_is_passed_without_dimensions_as_the_vendors_tool_does(
    tmp_path: Path,
) -> None:
    line = LINE.format(1, "CumsumOperation", '{"axes":[1]}', "I:ERROR_INVALID_TENSOR_DIM")
    path = folder(tmp_path, line.replace("|4,8|1|", "|4,0|1|"))
    ran = run(str(path), "--only", "statuses")
    assert "1 of 1 agree" in ran.stdout, ran.stdout + ran.stderr
    assert ran.returncode == 0


@pytest.mark.parametrize(("answer", "side"), [(FALSE, "ours"), (STATUS, "vendor")])
def test_what_the_library_takes_is_the_vendors_only_where_its_source_shows_why(
    tmp_path: Path, answer: str, side: str
) -> None:
    path = folder(tmp_path, SCATTER)
    source = path / "src/ops/ops_infer/reduce_scatterv/reduce_scatterv_operation.cpp"
    source.parent.mkdir(parents=True)
    text = "bool Look(const Param &p)\n{{\n    if (p.size < 2) {{\n        {}\n    }}\n}}\n"
    source.write_text(text.format(answer), encoding="utf-8")
    ran = run(str(path), "--only", "statuses")
    assert f"some 1: C:NO_ERROR, not C:ERROR_INVALID_PARAM; {side}" in ran.stdout, ran.stderr
    assert ran.returncode == int(side == "ours")


@pytest.mark.parametrize(
    ("preprocess", "said"),
    [
        ("pass", "1 skipped, it passes none of the numbers that the library reads on the host"),
        ("operation.set_varaintpack_param('{\"seqLen\": [8]}')", "S:ERROR_INVALID_PARAM; ours"),
    ],
)
def test_lengths_that_are_not_passed_on_the_host_cannot_be_missed_by_hostatb(
    tmp_path: Path, preprocess: str, said: str
) -> None:
    path = folder(tmp_path, RING)
    tool = path / "tests/framework/python/CsvOpsTestTool/data_generation.py"
    tool.write_text(tool.read_text("utf-8") + RING_GENERATOR.format(preprocess), encoding="utf-8")
    ran = run(str(path), "--only", "statuses")
    assert said in ran.stdout, ran.stdout + ran.stderr
