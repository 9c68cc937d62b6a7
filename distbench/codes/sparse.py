"""Codes for sparse gradients (tf.IndexedSlices)."""

from distbench.codes.code import Code

CODES = (
    Code(
        name="sparse-duplicates",
        phases=("reduced_gradient", "applied_gradient"),
        signature="of a row that occurs several times only one slice arrives",
        meaning=(
            "A row of an embedding that several examples or replicas use comes as "
            "several slices. The update rule writes them one after the other instead "
            "of "
            "adding them up, so all but one are lost."
        ),
        mathematics=(
            "expected: g[row] = Σ_{k: index_k = row} slice_k\n"
            "observed: g[row] = slice_k of one k (mostly the last)"
        ),
        wrong=(
            "def _resource_apply_sparse(self, grad, var, indices, apply_state=None):\n"
            "    m_t = m.scatter_update(tf.IndexedSlices(new_m, indices))"
        ),
        right=(
            "unique, position = tf.unique(indices)\n"
            "summed = tf.math.unsorted_segment_sum(grad, position, "
            "tf.shape(unique)[0])\n"
            "# then use `summed` and `unique`"
        ),
        confirm="Use batches in which no row occurs twice: the finding disappears.",
        fix=(
            "Add duplicates up before the rule. OptimizerV2 does so in "
            "_resource_apply_sparse_duplicate_indices unless a subclass overrides it."
        ),
    ),
    Code(
        name="sparse-averaged",
        phases=("reduced_gradient", "applied_gradient"),
        signature="rows are divided by how often they occur, or by N",
        meaning=(
            "Rows of a sparse gradient are averaged where dense gradients are summed, "
            "by their number of occurrences or by the number of replicas. Frequent "
            "rows "
            "learn too slowly."
        ),
        mathematics=(
            "expected: g[row] = Σ_k slice_k\n"
            "observed: g[row] = Σ_k slice_k / c, c = occurrences of the row, or N"
        ),
        wrong="summed = tf.math.unsorted_segment_mean(grad, position, count)",
        right="summed = tf.math.unsorted_segment_sum(grad, position, count)",
        confirm="Rows that occur once are right (for c = occurrences).",
        fix="Sum the slices of a row, over examples and over replicas, as for dense.",
    ),
    Code(
        name="sparse-rows",
        phases=("reduced_gradient", "applied_gradient"),
        signature="right values in wrong rows, or rows missing",
        meaning=(
            "Slices of different replicas are combined as if their indices were equal, "
            "so values land in rows that they do not belong to, or rows are left out."
        ),
        mathematics=(
            "expected: the slices of all replicas, each with its own index\n"
            "observed: Σ_r values_r with the indices of one replica"
        ),
        wrong=(
            "values = context.all_reduce(tf.distribute.ReduceOp.SUM, grad.values)\n"
            "grad = tf.IndexedSlices(values, grad.indices, grad.dense_shape)"
        ),
        right="grad = context.all_reduce(tf.distribute.ReduceOp.SUM, grad)",
        confirm="Convert the gradient to dense before the sum: the finding disappears.",
        fix=(
            "Reduce the IndexedSlices as a whole, or gather values and indices "
            "together; never reduce the values alone."
        ),
    ),
)
