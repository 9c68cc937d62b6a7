"""Codes for the optimizer's own state and for initial values."""

from distbench.codes.code import Code

CODES = (
    Code(
        name="slot-initial",
        phases=("slot",),
        signature="a slot differs before the first step",
        meaning=(
            "A slot (momentum, average, accumulator) starts from another value than on "
            "one device: it was filled from a variable that had no value yet, or on "
            "the first replica only."
        ),
        mathematics=(
            "expected: s_0 as on one device\nobserved: s_0 already differs at step -1"
        ),
        wrong='self.add_slot(var, "slow", initializer=tf.zeros_initializer())',
        right=(
            'self.add_slot(var, "slow", initializer=var.read_value())\n'
            "# or, where the value must be that of the moment: assign it on step 0"
        ),
        confirm="The finding is at step -1, before any gradient was used.",
        fix="Give the slot its initial value when it is created, on every replica.",
    ),
    Code(
        name="slot-from-local-gradient",
        phases=("slot",),
        signature="the slot follows g_r where it should follow Σ g_r",
        meaning=(
            "The slot is updated from the replica's own gradient while the variable is "
            "updated from the sum: statistics such as momentum or second moments "
            "belong to one shard, and differ from replica to replica."
        ),
        mathematics=(
            "expected: s_{t+1} = f(s_t, Σ_r g_r)\nobserved: s_{t+1} = f(s_t, g_r)"
        ),
        wrong=(
            "def apply_gradients(self, grads_and_vars, **kwargs):\n"
            "    self._update_statistics(grads_and_vars)  # not summed yet\n"
            "    return super().apply_gradients(grads_and_vars, **kwargs)"
        ),
        right=(
            "def _resource_apply_dense(self, grad, var, apply_state=None):\n"
            "    # what arrives here was summed over the replicas\n"
            "    m_t = m.assign(beta * m + (1 - beta) * grad)"
        ),
        confirm=(
            "The slot differs over the replicas, and the reduced gradient does not."
        ),
        fix=(
            "Update slots where the reduced gradient arrives: in the update rule "
            "(update_step; of a legacy optimizer _resource_apply_dense and "
            "_resource_apply_sparse), or after your own all_reduce."
        ),
    ),
    Code(
        name="slot-not-synchronized",
        phases=("slot",),
        signature="replicas hold different values of a slot from equal gradients",
        meaning=(
            "A slot drifts apart over the replicas though each saw the same reduced "
            "gradient: it is made of something of the replica's own (its gradient, its "
            "examples, its random numbers, another branch of the rule), is a plain "
            "variable made inside the replica, or is written with an aggregation that "
            "does not keep the copies equal."
        ),
        mathematics=(
            "expected: s_r = s_0 for every replica r, bit by bit\nobserved: s_r ≠ s_0"
        ),
        wrong="self._average = tf.Variable(tf.zeros(shape))  # made in replica context",
        right='self.add_slot(var, "average")  # in _create_slots',
        confirm="Compare the slot over the replicas after one step.",
        fix=(
            "Update the slot only from what all replicas have alike, such as the "
            "reduced gradient, or random numbers of one seed; create it with add_slot, "
            "or under the strategy's scope, before strategy.run."
        ),
    ),
    Code(
        name="slot-repeated",
        phases=("slot",),
        signature="the slot's update was done k times, often k = N",
        meaning=(
            "The slot is advanced once for each replica, micro-step or sub-optimizer "
            "instead of once a step: moving averages and decays run too fast. So is "
            "one that counts the slices of a row, of which each replica has one."
        ),
        mathematics=(
            "expected: s_{t+1} = f(s_t)\nobserved: s_{t+1} = f(f(…f(s_t)…)), k times"
        ),
        wrong=(
            "for replica in range(strategy.num_replicas_in_sync):\n"
            "    average.assign(decay * average + (1 - decay) * var)"
        ),
        right="average.assign(decay * average + (1 - decay) * var)  # once a step",
        confirm=(
            "The number of repetitions follows the number of replicas (or of calls)."
        ),
        fix="Do the update once: in the update rule (update_step, or "
        "_resource_apply_dense of a legacy optimizer), not around it, and after the "
        "slices of a row are added up.",
    ),
    Code(
        name="initial-value-differs",
        phases=("slot", "variable"),
        signature="a variable or slot differs over the replicas before the first step",
        meaning=(
            "Replicas start from different values: the initialiser draws other random "
            "numbers in each process, or a variable was made outside the strategy."
        ),
        mathematics=(
            "expected: θ_r = θ_0 at step -1 for every replica r\nobserved: θ_r ≠ θ_0"
        ),
        wrong="model = build_model()  # outside the scope",
        right="with strategy.scope():\n    model = build_model()",
        confirm="Compare the variables over the replicas before the first step.",
        fix=(
            "Create variables under strategy.scope(), which broadcasts the first "
            "replica's value, in the same order in every process."
        ),
    ),
    Code(
        name="state-not-restored",
        phases=("slot", "variable"),
        signature="after a restore, state is that of a fresh start",
        meaning=(
            "A checkpoint was loaded, but some state was not: slots or the step "
            "counter start over though the variables continue. All that one restore "
            "leaves out is one finding, with slots first."
        ),
        mathematics=(
            "expected: s after restore = s when saved\nobserved: s after restore = s_0"
        ),
        wrong="tf.train.Checkpoint(model=model).restore(path)",
        right="tf.train.Checkpoint(model=model, optimizer=optimizer).restore(path)",
        confirm=(
            "Call assert_consumed() on what restore returns: it names what is left."
        ),
        fix=(
            "Save and restore the optimizer too, after its slots exist (or on first "
            "use)."
        ),
    ),
)
