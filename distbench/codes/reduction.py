"""Codes for gradients that are reduced wrongly over the replicas."""

from distbench.codes.code import Code

CODES = (
    Code(
        name="missing-reduction",
        phases=("reduced_gradient",),
        signature="what each replica applies is its own gradient; replicas drift apart",
        meaning=(
            "Nobody sums the gradients over the replicas: each trains a model of its "
            "own on its own shard. Losses still fall, which is why it goes unseen."
        ),
        mathematics=(
            "expected: reduced_r = Σ_s g_s on every replica r\n"
            "observed: reduced_r = g_r"
        ),
        wrong=(
            "optimizer.apply_gradients(pairs, experimental_aggregate_gradients=False)"
        ),
        right=(
            "context = tf.distribute.get_replica_context()\n"
            "gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)\n"
            "optimizer.apply_gradients(\n"
            "    zip(gradients, variables), experimental_aggregate_gradients=False\n"
            ")"
        ),
        confirm="Compare a variable over the replicas after one step: it differs.",
        fix=(
            "Let the optimizer aggregate (the default), or call all_reduce before "
            "apply_gradients if the flag must stay. An overridden apply_gradients must "
            "aggregate, or hand the flag on to the base class. Who steps a variable by "
            "hand, as by assign_sub, makes that of its summed gradient (all_reduce)."
        ),
    ),
    Code(
        name="variable-not-reduced",
        phases=("reduced_gradient",),
        signature="as missing-reduction, for some of the variables",
        meaning=(
            "Some variables get the sum of the replicas' gradients, others only the "
            "local gradient: a second optimizer, a parameter group or a filter by name "
            "takes another way."
        ),
        mathematics=(
            "for the variables v that are named: reduced_r(v) = g_r(v)\n"
            "for all others: reduced_r(v) = Σ_s g_s(v)"
        ),
        wrong=(
            "body.apply_gradients(zip(reduced, body_variables))\n"
            "head.apply_gradients(\n"
            "    zip(g, head_variables),\n"
            "    experimental_aggregate_gradients=False,\n"
            ")"
        ),
        right=(
            "body.apply_gradients(zip(g_body, body_variables))\n"
            "head.apply_gradients(zip(g_head, head_variables))"
        ),
        confirm="The variables that are named differ over the replicas, others do not.",
        fix="Take the named variables through the same aggregation as the others.",
    ),
    Code(
        name="double-reduction",
        phases=("reduced_gradient",),
        signature="ratio N after the reduction, 1 before it",
        meaning=(
            "The gradients are summed twice: once by the user (or a wrapper) and again "
            "by the optimizer. The second sum adds N equal values. The same goes for "
            "what is made of the sum: a norm whose squares are added up over replicas "
            "that each have all of them is √N times too large, and a step that is "
            "divided by it too short. Gradients that are summed once and multiplied by "
            "N by hand look the same."
        ),
        mathematics="expected: Σ_s g_s\nobserved: Σ_r (Σ_s g_s) = N · Σ_s g_s",
        wrong=(
            "gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)\n"
            "optimizer.apply_gradients(zip(gradients, variables))"
        ),
        right=(
            "gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)\n"
            "optimizer.apply_gradients(\n"
            "    zip(gradients, variables), experimental_aggregate_gradients=False\n"
            ")"
        ),
        confirm="On one replica the result is right; the ratio follows N.",
        fix=(
            "Reduce once: drop the all_reduce, or switch the optimizer's own off. If "
            "there is one sum alone, drop the factor N on the gradients."
        ),
    ),
    Code(
        name="mean-instead-of-sum",
        phases=("reduced_gradient",),
        signature="ratio 1/N after the reduction, 1 before it",
        meaning=(
            "The gradients are averaged over the replicas although the loss was "
            "already divided by the global batch. The update is N times too small. So "
            "it is where means over the own shards are weighted by the shards' sizes, "
            "which makes them a mean already, and then averaged too."
        ),
        mathematics=(
            "expected: Σ_s g_s, with loss_s divided by G\nobserved: (1/N) Σ_s g_s"
        ),
        wrong="context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients)",
        right="context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)",
        confirm=(
            "Replace MEAN by SUM, or multiply the loss by N: the finding disappears."
        ),
        fix=(
            "Sum gradients of losses that were divided by the global batch; average "
            "only gradients of local means (right for even shards alone)."
        ),
    ),
    Code(
        name="replica-dropped",
        phases=("reduced_gradient",),
        signature="the sum over a strict subset of the replicas",
        meaning=(
            "Some replicas do not take part in the sum: their examples are lost. The "
            "finding names them."
        ),
        mathematics=(
            "expected: Σ_{all s} g_s\nobserved: Σ_{s in S} g_s for a smaller set S"
        ),
        wrong="total = tf.add_n(strategy.experimental_local_results(gradients))",
        right=(
            "total = strategy.reduce(tf.distribute.ReduceOp.SUM, gradients, axis=None)"
        ),
        confirm=(
            "Change the data of the named replica only: the update does not change."
        ),
        fix=(
            "Reduce over all replicas of all workers; experimental_local_results sees "
            "one worker's. Look for groups, ring neighbours or conditions by rank."
        ),
    ),
    Code(
        name="wrong-pairing",
        phases=("reduced_gradient",),
        signature="a variable gets the gradient of another",
        meaning=(
            "Gradients and variables come in different orders, so a sum or an update "
            "takes another variable's gradient, or replicas disagree on the order. The "
            "same goes for what replicas gather: one replica's elements come after the "
            "other's, and a sum over another axis than the replicas' adds up elements "
            "of different places."
        ),
        mathematics=(
            "expected: reduced(v) = Σ_s g_s(v)\n"
            "observed: reduced(v) = Σ_s g_s(w), w ≠ v"
        ),
        wrong="zip(gradients, sorted(model.trainable_variables, key=lambda v: v.name))",
        right="zip(gradients, model.trainable_variables)",
        confirm="Make the two variables' shapes differ: the program raises instead.",
        fix=(
            "Keep one list of variables and use it for the gradients, the reduction "
            "and "
            "the update; never order by a set, a dict of another process or a name."
        ),
    ),
    Code(
        name="clip-before-reduction",
        phases=("reduced_gradient",),
        signature="Σ clip(g_r) in place of clip(Σ g_r)",
        meaning=(
            "Each replica clips its own gradient before the sum. The result can be N "
            "times longer than the limit and points in another direction, and it "
            "changes with the number of replicas. The same goes for a sum that is "
            "clipped by what the replicas' own norms come to together, such as the "
            "root of their squares added up: that is not the norm of the sum."
        ),
        mathematics="expected: clip(Σ_r g_r)\nobserved: Σ_r clip(g_r)",
        wrong=(
            "gradients, _ = tf.clip_by_global_norm(gradients, 1.0)\n"
            "optimizer.apply_gradients(zip(gradients, variables))"
        ),
        right=(
            "gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)\n"
            "gradients, _ = tf.clip_by_global_norm(gradients, 1.0)\n"
            "optimizer.apply_gradients(\n"
            "    zip(gradients, variables), experimental_aggregate_gradients=False\n"
            ")"
        ),
        confirm="Raise the limit until nothing is clipped: the finding disappears.",
        fix=(
            "Clip what was summed: global_clipnorm= of an optimizer of tf_keras, "
            "gradient_transformers=, or a gradient_aggregator that sums, then clips. "
            "Keras 3 clips before it sums: there sum by all_reduce, clip, and divide "
            "by the replicas, as apply adds up again."
        ),
    ),
    Code(
        name="nonlinear-before-reduction",
        phases=("reduced_gradient",),
        signature="Σ f(g_r) in place of f(Σ g_r), f a sign, a quantiser or noise",
        meaning=(
            "Something that is not linear is done to each replica's gradient before "
            "the sum: a sign, a quantisation, top-k or noise; or gradients of several "
            "losses are projected on each other there. It does not commute with the "
            "sum, so the result is not that of one device. No more does a mask that "
            "each replica draws with a seed of its own."
        ),
        mathematics="expected: f(Σ_r g_r)\nobserved: Σ_r f(g_r)",
        wrong="gradients = [tf.sign(g) for g in gradients]  # then summed",
        right=(
            "gradient_transformers = [lambda pairs: [(tf.sign(g), v) for g, v in "
            "pairs]]"
        ),
        confirm="Replace the function by the identity: the finding disappears.",
        fix=(
            "Move the function behind the sum; draw what all are meant to share from "
            "one seed. If it is meant (compression, noise for "
            "privacy), say so with --expect nonlinear-before-reduction."
        ),
    ),
)
