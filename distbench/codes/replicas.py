"""Codes for replicas that do not agree with each other."""

from distbench.codes.code import Code

CODES = (
    Code(
        name="replicas-diverged",
        phases=("loss", "local_gradient", "reduced_gradient", "variable"),
        signature="a variable is not bitwise equal over the replicas",
        meaning=(
            "Copies of a variable that must be equal differ, and each step makes them "
            "differ more. Named is the first phase that does: the update, or sums of "
            "gradients that are equal up to rounding or a draw, and not bit by bit. A "
            "variable that each replica has for itself (ON_READ) may differ: it is "
            "named where a loss or gradient is wrong that a replica makes of it, and "
            "the step before has left another value there than on the others. So is "
            "one that trains as the mean of such copies, as under local SGD."
        ),
        mathematics=(
            "expected: θ_r = θ_0 for every replica r, bit by bit\nobserved: θ_r ≠ θ_0"
        ),
        wrong=(
            "variable.assign_sub(lr * g + tf.random.normal(shape))  # other noise each"
        ),
        right=(
            "noise = tf.random.stateless_normal(shape, seed=[step, 0])  # equal on "
            "all\n"
            "variable.assign_sub(lr * g + noise)"
        ),
        confirm="Compare the variable over the replicas after each step.",
        fix=(
            "Find what differs by replica in the update or the sum: random numbers, "
            "the rank, Python state, a branch on local data, an order. Derive it from "
            "equal values, and add up in one order on all."
        ),
    ),
    Code(
        name="statistics-not-synchronized",
        phases=("loss", "local_gradient", "variable"),
        signature="statistics, moving or those of a loss, are of the own shard",
        meaning=(
            "Statistics such as those of batch normalisation come from one replica "
            "though the program means them to come from all. Evaluation then depends "
            "on the replica that is read. So does a loss that is made of what other "
            "replicas computed as well: the line is named from which it goes another "
            "way than on one device. Or it reads each replica's own copy (ON_READ) of "
            "a sum or mean that is declared as that of all: the variable is named if "
            "shards that start from one device's value of it make up the global batch, "
            "and from their own copies do not."
        ),
        mathematics=(
            "expected: mean and variance over the global batch\n"
            "observed: those of shard r, or a mean of the shards' variances"
        ),
        wrong="tf_keras.layers.BatchNormalization()",
        right="tf_keras.layers.BatchNormalization(synchronized=True)",
        confirm="Compare moving_mean and moving_variance over the replicas.",
        fix=(
            "Make it of what was summed over all replicas (all_reduce), the count "
            "included; synchronized=True does so for batch normalisation. What each "
            "adds a share to has aggregation SUM, not MEAN. Where local statistics "
            "are meant, say so with --expect statistics-not-synchronized."
        ),
    ),
)
