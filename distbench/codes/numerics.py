"""Codes for numbers themselves: factors, precision, infinities."""

from distbench.codes.code import Code

_ANY = (
    "loss",
    "local_gradient",
    "reduced_gradient",
    "applied_gradient",
    "slot",
    "variable",
)

CODES = (
    Code(
        name="scale-error",
        phases=_ANY,
        signature="a constant ratio that no other code explains",
        meaning=(
            "Everything is right up to one constant factor, which is given. It is "
            "neither N nor 1/N: think of the number of workers, of GPUs per worker, "
            "of micro-steps, of a batch or sequence length, or of a loss scale."
        ),
        mathematics=(
            "expected: x\nobserved: c · x, with the same c in every tensor named"
        ),
        wrong="loss = tf.reduce_sum(per_example) / BATCH_PER_WORKER",
        right="loss = tf.reduce_sum(per_example) / GLOBAL_BATCH",
        confirm="Change the number you suspect: the ratio follows it.",
        fix="Look for that number in divisions on the way from loss to update.",
    ),
    Code(
        name="nonfinite",
        phases=_ANY,
        signature="Inf or NaN on some replicas, finite on one device",
        meaning=(
            "A value is infinite or not a number on the replicas that are named. With "
            "a "
            "loss scale, all replicas must agree to skip the step and to lower the "
            "scale; where only some do, their scales and weights part."
        ),
        mathematics=(
            "expected: finite, or skipped by every replica alike\n"
            "observed: Inf or NaN on a subset; a sum with one of them is not finite"
        ),
        wrong=("if tf.reduce_all(tf.math.is_finite(local_gradient)):\n    apply()"),
        right=(
            "finite = tf.reduce_all(tf.math.is_finite(reduced_gradient))  # equal on "
            "all\n"
            "if finite:\n"
            "    apply()"
        ),
        confirm="Look at the phase and the replica that are named, at that step.",
        fix=(
            "Decide on the reduced gradient, not on the local one. Empty shards divide "
            "by zero: divide by the global batch instead."
        ),
    ),
    Code(
        name="lower-precision",
        phases=_ANY,
        signature="the error is that of rounding in a narrower dtype",
        meaning=(
            "The values fit a computation in fewer bits, for example gradients that "
            "travel as float16. A warning: the run passes."
        ),
        mathematics=(
            "expected: |error| ≤ γ_n(u) · Σ|x_i| with the unit roundoff u of the "
            "dtype\n"
            "observed: within the same bound for the u of a narrower dtype"
        ),
        wrong='g = context.all_reduce("SUM", tf.cast(g, tf.float16))',
        right='g = context.all_reduce("SUM", g)',
        confirm="Do the sum in the variables' dtype: the finding disappears.",
        fix="Nothing, if it is meant; else reduce in the wider dtype.",
        warning=True,
    ),
    Code(
        name="nondeterministic-update",
        phases=_ANY,
        signature="the error disappears under op determinism",
        meaning=(
            "Something adds in an order that changes from run to run, as kernels of "
            "GPUs do that add up what comes as it comes: most often the update of "
            "sparse rows. Copies differ in the last bits, and drift apart. What the "
            "bench found wrong is gone where TensorFlow has ops repeat their bits. A "
            "warning: the run passes."
        ),
        mathematics=(
            "expected: equal bits\nobserved: sums of the same terms in another order"
        ),
        wrong="# tf.math.unsorted_segment_sum on a GPU, for instance",
        right="tf.config.experimental.enable_op_determinism()",
        confirm="Call enable_op_determinism(): the difference disappears.",
        fix="Enable op determinism, or broadcast the variables now and then.",
        warning=True,
    ),
    Code(
        name="unexplained",
        phases=(*_ANY, "iterations"),
        signature="wrong, and no known cause fits; ratio statistics are given",
        meaning=(
            "The numbers are wrong from the phase that is named, but none of the known "
            "causes reproduces them. The bench says what it measured and does not "
            "guess."
        ),
        mathematics=(
            "|observed − expected| > bound, and no hypothesis explains the residual"
        ),
        confirm=(
            "Look at the first wrong phase: everything before it is right, so the "
            "cause "
            "lies between the two."
        ),
        fix=(
            "Reduce it: one step, fewer variables, two replicas; then compare the "
            "phase "
            "that is named with the one before it."
        ),
    ),
)
