"""Every known disagreement between published references has a test that pins the chosen side.

The numbers are those of the collection of references that these operators follow.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]
_ATTENTION, _OTHERS = "golden/test_attention_verdicts.py", "golden/test_verdicts.py"

PINNED = {
    1: (_ATTENTION, "test_a_finite_mask_is_added_after_the_scale"),
    2: (_ATTENTION, "test_the_high_precision_kernel_takes_masks_of_ones"),
    3: (_ATTENTION, "test_packed_attention_ignores_query_scale_and_clamp"),
    4: (_ATTENTION, "test_cached_keys_are_scaled_by_the_parameters_not_by_the_head_size"),
    5: (_OTHERS, "test_static_quantisation_of_layer_norm_divides_by_the_scale"),
    6: (_OTHERS, "test_second_output_of_quantised_post_norm_is_normalised_not_the_sum"),
    7: (_OTHERS, "test_elementwise_quantisation_multiplies_adds_and_rounds_to_even"),
    8: (_OTHERS, "test_per_channel_quantisation_adds_the_offset_before_it_rounds"),
    9: (_OTHERS, "test_per_channel_dequantisation_subtracts_before_it_scales"),
    10: (_OTHERS, "test_products_overflow_to_infinity"),
    11: (_OTHERS, "test_ties_of_dynamic_quantisation_go_away_from_zero_but_to_even_in_norms"),
    12: (_OTHERS, "test_bfloat16_stays_bfloat16"),
    13: (_OTHERS, "test_rstd_is_the_reciprocal_of_the_root"),
    14: (_OTHERS, "test_linear_has_a_bias_by_default_and_dequantises_without_one"),
    15: (_OTHERS, "test_linear_has_a_bias_by_default_and_dequantises_without_one"),
    16: (_OTHERS, "test_residual_of_linear_parallel_comes_after_the_scale_only_when_quantised"),
    17: (_OTHERS, "test_collectives_take_all_ranks_whatever_the_root_is"),
    18: (_OTHERS, "test_collectives_take_all_ranks_whatever_the_root_is"),
    19: (_OTHERS, "test_gather_pairs_batch_dimensions"),
    20: ("golden/test_experts.py", "test_gating_orders_slots_by_expert"),
    21: (_OTHERS, "test_index_add_of_valid_indices_stops_at_their_number"),
    22: (_OTHERS, "test_the_cache_keeps_what_was_there"),
    23: (_OTHERS, "test_nonzero_gives_padded_coordinates_and_a_count"),
    24: (_OTHERS, "test_onehot_puts_depth_at_the_axis"),
    25: (_OTHERS, "test_reductions_give_values_and_drop_all_axes"),
    26: (_OTHERS, "test_rope_counts_the_heads_of_query_and_key_apart"),
    27: (_OTHERS, "test_rope_gradient_adds_the_shifted_sine_to_the_cosine"),
    28: (_OTHERS, "test_rope_gradient_adds_the_shifted_sine_to_the_cosine"),
    29: (_OTHERS, "test_strided_products_read_the_keys_that_dumps_have"),
    30: ("golden/test_experts.py", "test_experts_multiply_their_positions"),
    31: ("golden/test_sampling.py", "test_single_topk_takes_one_stream_for_all_rows"),
    32: (_OTHERS, "test_softmax_gradient_comes_from_its_inputs"),
    33: (_OTHERS, "test_merged_attention_does_not_overflow"),
    34: ("golden/test_reshape_and_cache.py", "test_head_compression_keeps_the_last_tokens"),
    35: (_ATTENTION, "test_compressed_heads_of_paged_attention_have_own_tables_and_lengths"),
    36: (_OTHERS, "test_set_value_slices_every_dimension"),
    37: (_OTHERS, "test_softmax_over_several_axes_is_one_distribution"),
    38: (_OTHERS, "test_bfloat16_stays_bfloat16"),
    39: (_OTHERS, "test_swiglu_backward_takes_the_gradient_first"),
    40: (_OTHERS, "test_int8_products_are_exact_beyond_float32"),
    41: (_ATTENTION, "test_float16_operands_are_not_rounded_to_bfloat16"),
    42: (_ATTENTION, "test_run_status_switches_sequences_by_their_place"),
    43: (_ATTENTION, "test_query_heads_share_keys_in_the_cached_form_too"),
    44: (_OTHERS, "test_a_draw_equal_to_a_prefix_sum_takes_its_index"),
    45: (_ATTENTION, "test_compressed_alibi_takes_its_sign_from_the_slopes"),
    46: (
        "../judge/standards/test_other_standards.py",
        "test_benchmark_bounds_the_largest_and_the_mean_error",
    ),
}


@cache
def _running(path: str) -> frozenset[str]:
    """Names of the tests of a module that run: those that nothing skips."""
    tree = ast.parse((_TESTS / path).read_text())
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and not any("skip" in ast.unparse(mark) for mark in node.decorator_list)
    )


def test_all_forty_six_are_pinned() -> None:
    assert sorted(PINNED) == list(range(1, 47))


@pytest.mark.parametrize("number", PINNED)
def test_the_test_of_a_disagreement_exists(number: int) -> None:
    path, name = PINNED[number]
    assert name in _running(path)
