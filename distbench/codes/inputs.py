"""Codes for input pipelines and random numbers."""

from distbench.codes.code import Code

CODES = (
    Code(
        name="examples-repeated",
        phases=("loss",),
        signature="several replicas got the same examples",
        meaning=(
            "Replicas read the same records: the data set is not sharded, or it is "
            "shuffled alike everywhere. N replicas then do the work of one."
        ),
        mathematics=(
            "expected: shards are disjoint\n"
            "observed: shard_r ∩ shard_s ≠ ∅ for some r ≠ s"
        ),
        wrong="dataset = tf.data.Dataset.from_tensor_slices(data).batch(local_batch)",
        right=(
            "def dataset_fn(context):\n"
            "    data = tf.data.Dataset.from_tensor_slices(examples).shard(\n"
            "        context.num_input_pipelines, context.input_pipeline_id\n"
            "    )\n"
            "    return data.batch(context.get_per_replica_batch_size(GLOBAL_BATCH))"
        ),
        confirm="Let every replica print the indices of its examples.",
        fix="Shard before shuffling, by input_pipeline_id, or use auto-sharding.",
        fix_alone=(
            "Shard before shuffling, by "
            "tf.distribute.coordinator.experimental_get_current_worker_index(): on "
            "parameter servers input_pipeline_id is 0 on each worker."
        ),
    ),
    Code(
        name="examples-missed",
        phases=("loss",),
        signature="some examples of the global batch reach no replica",
        meaning=(
            "Examples are lost on their way: a dropped remainder, a shard number "
            "beyond the number of pipelines, files that auto-sharding gave to nobody, "
            "or a replica that got none in a step, so that its loss and gradients are "
            "0. Or a step leaves some of its batch out by their places in it, as what "
            "micro-batches of n // k leave over, the last one, all after a cap, or the "
            "half that is of another domain: a shard has other places than the global "
            "batch, so other examples have a gradient, or that of a variable, than on "
            "one device. Or a pipeline makes others of them, by a rule of its own, as "
            "by a vocabulary or a mean of its shard or by the worker's number: each "
            "replica then trains on what one device never has."
        ),
        mathematics=(
            "expected: Σ_r n_r = G, and the examples with a gradient are those that "
            "have one on one device\n"
            "observed: Σ_r n_r < G, or others have, or f_r(x) in the place of f(x)"
        ),
        wrong="dataset.shard(num_workers + 1, worker_index)",
        right="dataset.shard(context.num_input_pipelines, context.input_pipeline_id)",
        confirm="Sum the replicas' example counts over one epoch.",
        fix=(
            "Count the examples; avoid drop_remainder, or account for what it drops. "
            "Take statistics and vocabularies of all, before shard."
        ),
    ),
    Code(
        name="randomness-shared",
        phases=("loss",),
        signature="replicas draw the same random numbers",
        meaning=(
            "Every replica draws equal random numbers (dropout masks, augmentation, "
            "noise), so N replicas do not average over N draws."
        ),
        mathematics=(
            "expected: independent draws on each replica\n"
            "observed: the same draw on all"
        ),
        wrong="mask = tf.random.stateless_uniform(shape, seed=[step, 0])",
        right=(
            "replica = tf.distribute.get_replica_context().replica_id_in_sync_group\n"
            "mask = tf.random.stateless_uniform(shape, seed=[step, replica])"
        ),
        confirm="Let every replica print the first number that it draws.",
        fix="Fold the replica's number into the seed.",
    ),
)
