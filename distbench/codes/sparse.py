"""Codes for sparse gradients (tf.IndexedSlices)."""

from distbench.codes.code import Code

CODES = (
    Code(
        name="sparse-duplicates",
        phases=("reduced_gradient", "applied_gradient", "slot", "variable"),
        signature="of a row that occurs several times only one slice arrives, or each "
        "is a gradient of its own",
        meaning=(
            "A row of an embedding that several examples or replicas use comes as "
            "several slices. The update rule writes them one after the other instead "
            "of "
            "adding them up, so all but one are lost. Or it makes something of each, "
            "as its square: where a model looks a row up once, or each replica adds up "
            "its own slices, one device has one slice of a row and N replicas have N."
        ),
        mathematics=(
            "expected: g[row] = Σ_{k: index_k = row} slice_k, s[row] = f(g[row])\n"
            "observed: g[row] = slice_k of one k (mostly the last), or in a slot\n"
            "s[row] = Σ_k f(slice_k), k over the replicas that have the row"
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
        confirm="Use batches in which no row occurs twice, on any two replicas "
        "either: the finding disappears.",
        fix=(
            "Add duplicates up before the rule. OptimizerV2 does so in "
            "_resource_apply_sparse_duplicate_indices unless a subclass overrides it."
        ),
    ),
    Code(
        name="sparse-averaged",
        phases=("reduced_gradient", "applied_gradient", "slot", "variable"),
        signature="rows are divided by how often they occur, or by N",
        meaning=(
            "Rows of a sparse gradient are averaged where dense gradients are summed, "
            "by their number of occurrences or by the number of replicas. Frequent "
            "rows "
            "learn too slowly. In the update it is a rule that divides by the number "
            "of a row's slices, or by that of those which replicas have added up "
            "before."
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
        phases=("reduced_gradient", "applied_gradient", "slot", "variable"),
        signature="right values in wrong rows, rows missing, or rows that nobody "
        "looked up",
        meaning=(
            "Slices of different replicas are combined as if their indices were equal, "
            "so values land in rows that they do not belong to, or rows are left out. "
            "Values that are gathered or sorted apart from their indices lie in rows "
            "of other slices too. "
            "Or the sum is right and has another form than on one device, as where it "
            "is dense on a cluster alone: a rule that moves the rows that it is given "
            "then moves others, by a momentum say."
        ),
        mathematics=(
            "expected: the slices of all replicas, each with its own index\n"
            "observed: Σ_r values_r with one replica's indices, or Σ_k value_k at\n"
            "index_π(k), π an order; or in a slot f(0) in rows that nobody looked up"
        ),
        wrong=(
            "values = context.all_reduce(tf.distribute.ReduceOp.SUM, grad.values)\n"
            "grad = tf.IndexedSlices(values, grad.indices, grad.dense_shape)"
        ),
        right="grad = context.all_reduce(tf.distribute.ReduceOp.SUM, grad)",
        confirm="Convert the gradient to dense before the sum: the finding disappears.",
        fix=(
            "Reduce the IndexedSlices as a whole, or gather values and indices "
            "together; never reduce the values alone, and hand the rule rows wherever "
            "one device does."
        ),
    ),
)
