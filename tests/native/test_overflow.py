"""The report of overflowing kernels."""

from __future__ import annotations

import pytest
from native_host import Host, call

pytestmark = pytest.mark.native

LINE = "Overflow detected! Operator name: "


def test_each_overflowing_kernel_is_reported_in_a_line(host: Host) -> None:
    run = host.trace("overflow=1", ATB_DUMP_TYPE=None, ATB_CHECK_TYPE="1", ATB_EXIT="0")
    report = host.output / f"ait_overflow_res_{run.summary['pid']}.txt"
    assert report.read_text().splitlines() == [
        f"{LINE}LinearOperation_0_0:PpMatMulF16Kernel",
        f"{LINE}LinearOperation_0_1_0:PpMatMulF16Kernel",
        f"{LINE}ActivationOperation_0_1_1:SwishF16Kernel",
        f"{LINE}ElewiseOperation_0_2:AddF16Kernel",
    ]
    assert [path.name for path in host.output.iterdir()] == [report.name]


def test_the_operation_stops_when_asked_to(host: Host) -> None:
    run = host.trace("overflow=1", ATB_DUMP_TYPE=None, ATB_CHECK_TYPE="1", ATB_EXIT="1")
    assert run.summary["failed"] == 1
    report = host.output / f"ait_overflow_res_{run.summary['pid']}.txt"
    assert report.read_text() == f"{LINE}LinearOperation_0_0:PpMatMulF16Kernel\n"


def test_repeated_overflows_of_a_kernel_are_one_line_and_a_count(host: Host) -> None:
    run = host.script(
        *[call("overflow", "A_0:K")] * 500, call("overflow", "B_1:K"), ATB_CHECK_TYPE="1"
    )
    (report,) = host.output.glob("ait_overflow_res_*.txt")
    assert report.read_text() == f"{LINE}A_0:K\n{LINE}B_1:K\n"
    assert "499 further overflows" in run.stderr


@pytest.mark.parametrize("kernel", [""])
def test_no_file_without_an_overflow(host: Host, kernel: str) -> None:
    host.script(call("overflow", kernel), ATB_DUMP_TYPE=None, ATB_CHECK_TYPE="1")
    assert list(host.output.iterdir()) == []


def test_without_an_output_directory_nothing_is_written(host: Host) -> None:
    run = host.script(
        call("overflow", "A_0:K"),
        cwd=host.output,
        ATB_DUMP_TYPE=None,
        ATB_CHECK_TYPE="1",
        ATB_OUTPUT_DIR=None,
    )
    assert run.returncode == 0
    assert list(host.output.iterdir()) == []


def test_a_report_survives_an_abrupt_end(host: Host) -> None:
    host.script(
        "isoverflow", call("overflow", "A_0:K"), "end\tkill", ATB_DUMP_TYPE=None, ATB_CHECK_TYPE="1"
    )
    (report,) = host.output.glob("ait_overflow_res_*.txt")
    assert report.read_text() == f"{LINE}A_0:K\n"
