"""Codes for losses that are scaled or reported wrongly."""

from distbench.codes.code import Code

CODES = (
    Code(
        name="loss-not-scaled",
        phases=("loss", "local_gradient"),
        signature="ratio N in the loss and the gradient of every replica",
        meaning=(
            "Each replica divides its loss by its own number of examples, and the "
            "gradients are then summed. The update is N times too large, so the "
            "result depends on the number of replicas."
        ),
        mathematics=(
            "expected: loss_r = Σ_{i in shard r} ℓ_i / G\n"
            "observed: loss_r = Σ_{i in shard r} ℓ_i / n_r\n"
            "equal shards have n_r = G / N, hence the ratio N"
        ),
        wrong="loss = tf.reduce_mean(per_example)",
        right=(
            "loss = tf.nn.compute_average_loss(\n"
            "    per_example,\n"
            "    global_batch_size=GLOBAL_BATCH,\n"
            ")"
        ),
        confirm=(
            "Run on 2 and on 4 replicas: the ratio follows the number of replicas. "
            "With shards of unequal size the ratio of replica r is G / n_r."
        ),
        fix=(
            "Divide the sum over the shard by the size of the global batch, or average "
            "the gradients instead of summing them; not both."
        ),
    ),
    Code(
        name="loss-scaled-twice",
        phases=("loss", "local_gradient"),
        signature="ratio 1/N in the loss and the gradient of every replica",
        meaning=(
            "The loss is divided by the number of replicas once more after it was "
            "divided by the global batch. The update is N times too small."
        ),
        mathematics=(
            "expected: loss_r = Σ_{i in shard r} ℓ_i / G\n"
            "observed: loss_r = Σ_{i in shard r} ℓ_i / (G · N)"
        ),
        wrong=(
            "loss = tf.nn.compute_average_loss(per_example, global_batch_size=G)\n"
            "loss /= strategy.num_replicas_in_sync"
        ),
        right="loss = tf.nn.compute_average_loss(per_example, global_batch_size=G)",
        confirm=(
            "Multiply the loss by num_replicas_in_sync: the finding disappears. Look "
            "for a second division in the loss function and in the training loop."
        ),
        fix="Divide once, by the size of the global batch.",
    ),
    Code(
        name="mean-of-means",
        phases=("loss", "local_gradient"),
        signature="wrong only where shards are uneven; each shard weighs 1/N",
        meaning=(
            "The means of the shards are averaged. That equals the mean over all "
            "examples only if every shard has the same number of them (or of tokens, "
            "or of unmasked elements); else examples of small shards weigh too much."
        ),
        mathematics=(
            "expected: Σ_r Σ_{i in shard r} ℓ_i / G\n"
            "observed: (1/N) Σ_r (1/n_r) Σ_{i in shard r} ℓ_i\n"
            "ratio of replica r: G / (N · n_r), which is 1 for even shards"
        ),
        wrong="loss = tf.reduce_mean(per_example) / strategy.num_replicas_in_sync",
        right="loss = tf.reduce_sum(per_example) / GLOBAL_BATCH",
        confirm=(
            "Give every replica the same number of examples: the finding disappears."
        ),
        fix=(
            "Divide by a count taken over all replicas (the global batch, or a count "
            "that was summed with all_reduce), never by the shard's own count."
        ),
    ),
    Code(
        name="regularizer-not-scaled",
        phases=("local_gradient",),
        signature="the residual is a multiple of the penalty's gradient",
        meaning=(
            "The penalty does not depend on the examples, so every replica computes "
            "all of it. Unless each takes 1/N of it, the sum over the replicas holds "
            "it N times, and weights shrink more the more replicas there are."
        ),
        mathematics=(
            "expected: g_r = ∂(data loss)_r + ∂R / N\n"
            "observed: g_r = ∂(data loss)_r + ∂R\n"
            "residual: (N−1)/N · ∂R on a replica, (N−1) · ∂R in the sum"
        ),
        wrong="loss = data_loss + tf.add_n(model.losses)",
        right=(
            "loss = data_loss + tf.nn.scale_regularization_loss(tf.add_n(model.losses))"
        ),
        confirm="Set the regularisation to 0: the finding disappears.",
        fix="Divide the penalty by num_replicas_in_sync before it joins the loss.",
        fix_alone=(
            "Give the penalty one weight, whatever the number of workers: each takes "
            "steps of its own, and every step has the whole penalty."
        ),
    ),
    Code(
        name="loss-misreported",
        phases=("loss",),
        signature="gradients are right, the returned number is wrong",
        meaning=(
            "Training is right, but the loss that is returned or displayed is not: "
            "often it is that of one replica, or a mean where a sum was due. Of what a "
            "train_step of a model returns on each replica, the fit of tf_keras shows "
            "the sum and that of Keras 3 the mean."
        ),
        mathematics=(
            "expected: Σ_r loss_r\n"
            "observed: loss_0, or Σ_r loss_r / N, or N · Σ_r loss_r"
        ),
        wrong="return strategy.experimental_local_results(losses)[0]",
        right="return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)",
        confirm="Compare the number with the sum of the replicas' losses.",
        fix=(
            "Reduce the replicas' losses as they were scaled: sum losses that were "
            "divided by the global batch, average local means of even shards."
        ),
    ),
    Code(
        name="metric-wrong",
        phases=("loss",),
        signature="gradients are right, a metric is not that of all examples",
        meaning=(
            "A metric, a counter or an accumulator of which every replica holds a part "
            "combines the replicas in the wrong way: an accuracy that was summed can "
            "exceed 1, one that is updated on one replica misses the others, the mean "
            "of the shards' means counts uneven shards alike, a mean that takes each "
            "replica's share of the loss divides their sum by N, and the largest "
            "values of the replicas are added up, as all state of Keras' metrics is."
        ),
        mathematics=(
            "expected: Σ_r (after_r - before_r) = after - before on one device\n"
            "observed: N times that, or what some replicas add, say\n"
            "shares as a mean: total / count = Σ_r loss_r / N, not Σ_r loss_r"
        ),
        wrong='accuracy = strategy.reduce("SUM", per_replica_accuracy, axis=None)',
        right=(
            "with strategy.scope():\n"
            "    accuracy = tf_keras.metrics.SparseCategoricalAccuracy()\n"
            "# on every replica: accuracy.update_state(labels, logits)"
        ),
        confirm="Compute the metric over the global batch on one device.",
        fix=(
            "Create it under the strategy's scope, give it on every replica what is "
            "made of its own shard, unscaled (a mean over updates takes N times the "
            "share of a loss), begin it anew on all of them, and read a metric outside "
            "strategy.run. What is no sum, as a maximum, has to be gathered from all "
            "replicas before it is kept."
        ),
        fix_alone=(
            "Update it in every step, whichever worker takes it, with what is made of "
            "the step's own batch, unscaled by the number of workers."
        ),
    ),
)
