"""Codes for programs that do not get to the end of a step."""

from distbench.codes.code import Code

CODES = (
    Code(
        name="raises",
        phases=(
            "loss",
            "local_gradient",
            "reduced_gradient",
            "applied_gradient",
            "slot",
            "variable",
            "iterations",
        ),
        signature="an exception on the cluster and none on one device",
        meaning=(
            "The subject runs on one device and raises on the cluster: as it is "
            "imported or built, while a step is traced, or when it runs. The "
            "exception, the replica and the last line of the user's code are shown."
        ),
        mathematics="–",
        wrong=(
            "count = context.num_replicas_in_sync\n"
            "features = tf.reshape(features, [GLOBAL_BATCH // count, 4])"
        ),
        right="features = tf.reshape(features, [-1, 4])  # shards may be uneven",
        confirm="Run the same check with '-c one': it passes.",
        fix=(
            "Read the exception. Common causes: shards that are expected to be even, "
            "a method that lacks an argument which the strategy passes, variables made "
            "on the first replica only, Python dictionaries keyed by variable names "
            "that replicas do not share."
        ),
    ),
    Code(
        name="collective-mismatch",
        phases=(),
        signature=(
            "replicas wait in different collectives; rank and collective are named"
        ),
        meaning=(
            "Replicas call different collectives, or the same ones in another order, "
            "so "
            "each waits for peers that never come. The run ends at its deadline."
        ),
        mathematics="–",
        wrong=('if worker_index == 0:\n    total = context.all_reduce("SUM", loss)'),
        right='total = context.all_reduce("SUM", loss)  # on every replica',
        confirm="Compare the stacks of the tasks: they stand in different lines.",
        fix=(
            "Call collectives on every replica, in the same order and with the same "
            "shapes: not under a condition on rank or local data, nor over a set."
        ),
    ),
)
