"""The register of causes: one line for each, most specific first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import NONLINEAR, Hypothesis
from distbench.diagnose.hypotheses import (
    added,
    alone,
    assigned,
    astray,
    averaged_parts,
    buffers,
    by_hand,
    clip_of_groups,
    clip_of_some,
    clipping,
    clips_of_sums,
    collected,
    combined,
    counted,
    cut_short,
    decay,
    decay_in_sums,
    decided,
    denominator,
    exchanged,
    followed,
    gathered,
    generic,
    handed_late,
    joined,
    late,
    left_behind,
    lengths,
    levels,
    loss,
    masks,
    means_in_terms,
    met,
    micro_steps,
    mispaired,
    missed,
    mixed,
    narrow_range,
    nonfinite,
    nonlinear,
    other_count,
    other_part,
    overflow,
    overwritten,
    own_additions,
    own_counts,
    own_groups,
    own_lengths,
    own_micro_steps,
    own_pieces,
    own_spreads,
    packed,
    pairing,
    penalty,
    powers_of_counts,
    precision,
    quotients,
    ranks,
    recounted,
    reduction,
    repeated,
    rounded_apart,
    rows_of_terms,
    scaled,
    scheduled,
    settings,
    signed_decay,
    slot_carried,
    slot_constant,
    slot_pace,
    slot_rule,
    slot_spread,
    slot_statistic,
    slot_taken,
    slots,
    sparse,
    statistics,
    steered,
    still_rows,
    summed_ends,
    terms,
    traced,
    update,
    weighted,
    wires,
)

Explain = Callable[[Context], Iterable[Hypothesis]]

CAUSES: tuple[Explain, ...] = (
    # That settings differ is seen, and what comes of them is not fitted.
    settings.explain_by_settings,
    settings.explain_by_untried_settings,
    narrow_range.explain_by_narrow_range,
    nonfinite.explain_by_nonfinite,
    overflow.explain_by_omission,
    overflow.explain_by_own_skip,
    decided.explain_by_own_decision,
    decided.explain_by_own_part,
    own_spreads.explain_by_own_variances,
    combined.explain_by_own_combination,
    # A shard that lacks an example is like a scale or a weight of its own.
    missed.explain_by_missed_examples,
    # A program that is run on a shard alone brings its whole penalty, so that a wrong
    # share of the penalty looks like a wrong share of the loss: the narrower first. The
    # penalty is also all there is to reduce of a variable that no example reaches.
    penalty.explain_by_penalty,
    left_behind.explain_by_state_left_behind,
    left_behind.explain_by_weights_of_their_own,
    loss.explain_by_equal_gradients,
    loss.explain_by_scale,
    loss.explain_by_own_factor,
    late.explain_by_late_read,
    weighted.explain_by_own_weights,
    # Two even shards cannot tell a term by the square of a count from a mean.
    powers_of_counts.explain_by_powers_of_counts,
    mixed.explain_by_parts,
    exchanged.explain_by_scaled_exchange,
    met.explain_by_own_means_on_the_way,
    terms.explain_by_terms,
    means_in_terms.explain_by_means_in_terms,
    rows_of_terms.explain_by_rows_of_terms,
    reduction.explain_by_missing_sum,
    reduction.explain_by_count,
    # Where one replica has all rows, "its rows count" is "the others are dropped": of a
    # sparse variable alone the former is likelier.
    sparse.explain_by_rows,
    sparse.explain_by_own_count,
    cut_short.explain_by_shortest,
    reduction.explain_by_subset,
    own_groups.explain_by_own_groups,
    sparse.explain_by_shifted_replica,
    pairing.explain_by_pairing,
    added.explain_by_addition,
    decay_in_sums.explain_by_counted_decay,
    decay_in_sums.explain_by_decayed_rows,
    buffers.explain_by_cuts,
    buffers.explain_by_offsets,
    packed.explain_by_own_order,
    gathered.explain_by_neighbours,
    generic.explain_by_staleness,
    handed_late.explain_by_keeping,
    collected.explain_by_running_sum,
    collected.explain_by_uncleared,
    traced.explain_by_traces,
    late.explain_by_late_copy,
    scheduled.explain_by_lost_step,
    scheduled.explain_by_lost_count,
    scheduled.explain_by_extra_step,
    slots.explain_by_start,
    slots.explain_by_stillness,
    slots.explain_by_local_gradient,
    slot_statistic.explain_by_local_statistic,
    by_hand.explain_by_mean,
    slot_statistic.explain_by_unknown_statistic,
    slot_spread.explain_by_own_squares,
    # That it is summed once more is seen; that it is assigned N times is a guess.
    by_hand.explain_by_repeated_sum,
    assigned.explain_by_added_copies,
    assigned.explain_by_assigned_steps,
    repeated.explain_by_repeated_replay,
    other_count.explain_by_other_count,
    overwritten.explain_by_overwritten_rows,
    overwritten.explain_by_rows_met_once,
    repeated.explain_by_repeated_slot,
    repeated.explain_by_slot_of_each,
    still_rows.explain_by_still_rows,
    update.explain_by_stillness,
    steered.explain_by_hidden_sum,
    # Shards that go on from what they left themselves lead an average of the weights.
    followed.explain_by_repeated_average,
    followed.explain_by_other_turn,
    followed.explain_by_kept_end,
    statistics.explain_by_statistics,
    summed_ends.explain_by_summed_ends,
    precision.explain_by_rounding,
    # Behind all that foretell the numbers of a statistic: what comes later is about
    # updates, whose lengths would be fitted to it.
    statistics.explain_by_unknown_statistic,
    update.explain_by_unseen_sum,
    repeated.explain_by_repeated_update,
    # Of a rule that is linear N updates are one of N times the sum.
    by_hand.explain_by_sum,
    update.explain_by_momentum,
    update.explain_by_new_momentum,
    averaged_parts.explain_by_averaged_parts,
    decay.explain_by_decay,
    decay.explain_by_decayed_replay,
    signed_decay.explain_by_signed_decay,
    update.explain_by_counter,
    rounded_apart.explain_by_rounding_of_some,
    clipping.explain_by_clip,
    clips_of_sums.explain_by_clip_of_mean,
    clips_of_sums.explain_by_clip_of_none,
    clipping.explain_by_own_clip,
    clipping.explain_by_joint_clip,
    clip_of_some.explain_by_clip_of_some,
    clip_of_groups.explain_by_clip_of_groups,
    clips_of_sums.explain_by_clip_to_other_limit,
    nonlinear.explain_by_sign,
    wires.explain_by_wire,
    nonlinear.explain_by_unit_norm,
    joined.explain_by_joined_norm,
    joined.explain_by_joined_length,
    counted.explain_by_counted_norm,
    quotients.explain_by_own_quotient,
    levels.explain_by_levels,
    levels.explain_by_other_unit,
    nonlinear.explain_by_own_change,
    masks.explain_by_own_draws,
    mispaired.explain_by_mispaired_slices,
    sparse.explain_by_moved_rows,
    # Each micro-step of a shard has other examples than one of the global batch.
    micro_steps.explain_by_weights_of_micro_steps,
    own_micro_steps.explain_by_own_micro_steps,
    astray.explain_by_own_value,
    astray.explain_by_own_value_on_the_way,
    astray.explain_by_full_value_on_the_way,
    # From here on something is fitted to each value, or several numbers to all.
    alone.explain_by_own_part,
    micro_steps.explain_by_number_of_micro_steps,
    own_groups.explain_by_sums_of_groups,
    generic.explain_by_factor,
    generic.explain_by_factors_of_steps,
    terms.explain_by_terms_of_steps,
    weighted.explain_by_own_shares,
    own_counts.explain_by_own_counts,
    reduction.explain_by_scaled_own,
    reduction.explain_by_weights,
    own_lengths.explain_by_own_lengths,
    lengths.explain_by_rate,
    lengths.explain_by_schedule,
    other_part.explain_by_other_part,
    denominator.explain_by_denominator,
    slot_rule.explain_by_late_gradient,
    slot_rule.explain_by_fed_factor,
    slot_rule.explain_by_old_value,
    slot_rule.explain_by_memory,
    slot_taken.explain_by_taken_factor,
    slot_carried.explain_by_carried,
    slot_constant.explain_by_constant,
    slot_pace.explain_by_pace,
    recounted.explain_by_share_of_sum,
    ranks.explain_by_ranks,
    own_pieces.explain_by_parts,
    masks.explain_by_mask,
    levels.explain_by_grid,
    nonlinear.explain_by_own_noise,
    own_additions.explain_by_own_additions,
    nonlinear.explain_by_noise,
    slots.explain_by_number,
)

_FITTED_APIECE: tuple[Explain, ...] = (
    alone.explain_by_own_part,
    generic.explain_by_factors_of_steps,
    terms.explain_by_terms_of_steps,
    weighted.explain_by_own_shares,
    own_counts.explain_by_own_counts,
    own_lengths.explain_by_own_lengths,
)
"""Fits with a factor for each step or replica. Beside a led statistic they name no
cause: what it scales has such factors, whatever it is that leads it."""

LAST: tuple[Explain, ...] = (scaled.explain_by_numbers_of_each,)
"""Fits with numbers for each value apart, which any narrower cause has as well, and so
has what a led statistic scales."""

APART: tuple[Explain, ...] = (slots.explain_by_own_way, update.explain_by_divergence)
"""What is said of replicas that differ, whatever they hold. It would hide what is known
of some variables, so it is asked of those of which nothing is."""

LEAST: tuple[Explain, ...] = (
    by_hand.explain_by_own_steps,
    recounted.explain_by_told_count,
)
"""What is done to each replica's gradient, or on clusters alone, whatever it is: of a
rule that shows the sum that it took, that sum tells more; so does any other cause."""


def list_hypotheses(context: Context) -> Iterator[Hypothesis]:
    """Ask every cause what the wrong values would be under it, in order.

    A sum of 0 does not tell what was done to its addends: any that are as large cancel,
    as of a task's weight that each replica draws its own way.
    """
    is_left = any(np.any(case.observed) for case in context.cases)
    for explain in CAUSES:
        if not (context.led and explain in _FITTED_APIECE):
            for hypothesis in explain(context):
                if is_left or hypothesis.code != NONLINEAR:
                    yield hypothesis


def list_apart(context: Context) -> Iterator[Hypothesis]:
    """Ask what is said of any replicas that differ."""
    for explain in APART:
        yield from explain(context)


def list_last(context: Context) -> Iterator[Hypothesis]:
    """Ask the causes that are tried where the others leave something open."""
    if not context.led:
        for explain in LAST:
            yield from explain(context)


def list_least(context: Context) -> Iterator[Hypothesis]:
    """Ask the causes that are tried where nothing else explains everything."""
    for explain in LEAST:
        yield from explain(context)
