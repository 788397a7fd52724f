"""Launches found in programs that Inductor generates, for processors and for CUDA."""

from __future__ import annotations

import ast

from hypothesis import given
from hypothesis import strategies as st

from ait_llm.dump.inductor.wrapper import insert_lines, read_wrapper, shifted_line

CPU = """
cpp_fused_add_0 = async_compile.cpp_pybinding(
    ['float*', 'const float*', 'const int64_t', 'float*'], r'''
extern "C" void kernel(float* in_out_ptr0) { call(); }
''')
class Runner:
    def call(self, args):
        arg0_1, arg1_1 = args
        args.clear()
        assert_size_stride(arg0_1, (4, ), (1, ), 'input')
        buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)
        buf1 = buf0; del buf0  # reuse
        cpp_fused_add_0(buf1, arg0_1, 4, buf2)
        extern_kernels.mm(reinterpret_tensor(buf1, (2, 2), (2, 1), 0), arg1_1, out=buf3)
        buf4 = torch.ops.aten.sort.default(buf3)
        del buf3
        buf5 = buf4[0]
        assert_alignment(buf5, 16, 'sort')
        aten.index_put_(buf5, [arg1_1], buf2, False)
        return (buf5, reinterpret_tensor(buf2, (2, 2), (2, 1), 0), )
def get_args():
    helper(buf9)
"""

CUDA = """
triton_poi_fused_mul_silu_0 = async_compile.triton('triton_poi_fused_mul_silu_0', '''
@triton_heuristics.pointwise(
    inductor_meta={'mutated_arg_names': ['in_out_ptr0']},
)
@triton.jit
def triton_poi_fused_mul_silu_0(in_out_ptr0, in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass
''', device_str='cuda')
user_kernel_0 = async_compile.triton('user_kernel', '''
inductor_meta={'mutated_arg_names': ['result']}
def user_kernel(source, result, n: tl.constexpr):
    pass
''', device_str='cuda')
multi_kernel_0 = async_compile.multi_kernel('multi_kernel_0', [triton_poi_fused_mul_silu_0])
def partition_0(args):
    arg0_1, = args
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = empty_strided_cuda((4, ), (1, ), torch.float32)
        stream0 = get_raw_stream(0)
        triton_poi_fused_mul_silu_0.run(buf1, arg0_1, buf0, 4, stream=stream0)
        user_kernel_0.run(buf0, buf2, 4, stream=stream0)
        multi_kernel_0.run(buf3, buf2, buf4, 4, stream=stream0)
    return (buf4, )
def call(args):
    arg0_1, = args
    (buf4,) = partition_0([arg0_1])
    return (buf4, )
"""


def test_kernels_for_processors_say_what_they_write_by_their_types() -> None:
    found = read_wrapper(CPU)
    assert [(each.kernel, each.writes) for each in found.statements] == [
        ("cpp_fused_add_0", ("buf1", "buf2")),
        ("extern_kernels.mm", ("buf3",)),
        ("torch.ops.aten.sort.default", ("buf4",)),
        ("", ("buf5",)),
        ("aten.index_put_", None),
    ]
    assert found.statements[3].picks == "buf4"
    assert found.statements[4].reads == ("buf5", "arg1_1", "buf2")


def test_triton_kernels_say_what_they_write_by_their_parameters() -> None:
    found = {each.kernel: each.writes for each in read_wrapper(CUDA).statements}
    assert found["triton_poi_fused_mul_silu_0"] == ("buf1", "buf0")
    assert found["user_kernel_0"] == ("buf2",)
    assert found["multi_kernel_0"] == ("buf3", "buf4")


def test_what_the_program_returns_is_told_by_expression() -> None:
    (end,) = read_wrapper(CPU).ends
    assert end.values[0] == ("buf5", ("buf5",))
    assert end.values[1][0] == "reinterpret_tensor(buf2, (2, 2), (2, 1), 0)"
    assert "buf2" in end.values[1][1]


def test_the_program_begins_once_whatever_partitions_it_has() -> None:
    ((line, indent),) = read_wrapper(CUDA).begins
    assert CUDA.split("\n")[line - 1].strip() == "arg0_1, = args"
    assert indent == "    "


def test_lines_around_every_launch_leave_a_program_that_parses() -> None:
    for text in (CPU, CUDA):
        found = read_wrapper(text)
        lines = [(each.first, f"{each.indent}before()") for each in found.statements]
        lines += [(each.last + 1, f"{each.indent}after()") for each in found.statements]
        changed = insert_lines(text, lines)
        ast.parse(changed)
        assert changed.count("before()") == changed.count("after()") == len(found.statements)
        kept = [line for line in changed.split("\n") if line.strip() not in ("before()", "after()")]
        assert "\n".join(kept) == text


@given(
    text=st.lists(st.text("ab", max_size=3), min_size=1, max_size=8),
    places=st.lists(st.integers(1, 9), max_size=8),
)
def test_lines_are_found_again_where_they_moved(text: list[str], places: list[int]) -> None:
    lines = [(min(place, len(text)), f"new{number}") for number, place in enumerate(places)]
    changed = insert_lines("\n".join(text), lines).split("\n")
    for number, line in enumerate(text, 1):
        assert changed[shifted_line(number, lines) - 1] == line
    for place in {place for place, _ in lines}:
        before = [text for at, text in lines if at == place]
        last = shifted_line(place, lines) - 1
        assert changed[last - len(before) : last] == before
