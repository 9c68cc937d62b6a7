"""Codes for updates that go wrong though the reduced gradient is right."""

from distbench.codes.code import Code

CODES = (
    Code(
        name="stale-gradient",
        phases=(
            "local_gradient",
            "reduced_gradient",
            "applied_gradient",
            "slot",
            "variable",
        ),
        signature="the gradient of an earlier step is applied",
        meaning=(
            "The update uses the gradient of an earlier step: a buffer is read before "
            "it is written, what collects gradients is not cleared once they are "
            "applied, or a Python value was captured when the graph was traced."
        ),
        mathematics=(
            "expected: applied_t = Σ_r g_{r,t}\n"
            "observed: applied_t = Σ_r g_{r,t−k}, k ≥ 1"
        ),
        wrong=(
            "optimizer.apply_gradients(zip(buffers, variables))\n"
            "for buffer, g in zip(buffers, gradients):\n"
            "    buffer.assign(g)"
        ),
        right=(
            "for buffer, g in zip(buffers, gradients):\n"
            "    buffer.assign(g)\n"
            "optimizer.apply_gradients(zip(buffers, variables))"
        ),
        confirm="The first step applies zeros; from then on each is one step late.",
        fix=(
            "Write the buffer before it is read, and clear what collects gradients "
            "once they are applied. A delay on purpose is for --expect."
        ),
    ),
    Code(
        name="update-repeated",
        phases=("variable",),
        signature="the variable moved k times as far, often k = N",
        meaning=(
            "The update is applied several times to the same variable, most often once "
            "for each replica on a variable that they share."
        ),
        mathematics=(
            "expected: θ_{t+1} = θ_t − u\n"
            "observed: θ_{t+1} = θ_t − k · u, k = N for one a replica"
        ),
        wrong=(
            "def merge(strategy, pairs):\n"
            "    for g, v in pairs:\n"
            "        for _ in strategy.experimental_local_results(v):\n"
            "            v.assign_sub(g)"
        ),
        right=(
            "def merge(strategy, pairs):\n"
            "    for g, v in pairs:\n"
            "        strategy.extended.update(v, lambda v, g: v.assign_sub(g), "
            "args=(g,))"
        ),
        confirm="The slots are right and the factor follows the number of replicas.",
        fix=(
            "Apply once for each copy: strategy.extended.update, or the optimizer's "
            "own."
        ),
        fix_alone=(
            "Apply once a step: look for a loop over workers, servers or shards, and "
            "for a second call of apply_gradients."
        ),
    ),
    Code(
        name="weight-decay-repeated",
        phases=("variable", "reduced_gradient"),
        signature="the decay was applied k times",
        meaning=(
            "Weight decay is applied more than once a step, for each replica, "
            "micro-step or sub-optimizer, while the gradient's part is right. Added to "
            "each replica's gradient, it is in their sum N times; added by some of "
            "them, or to the rows of their own examples, k times. A decay along the "
            "variable's signs, or a soft threshold, counts as well."
        ),
        mathematics=(
            "expected: θ_{t+1} = θ_t − η·λ·θ_t − u\n"
            "observed: θ_{t+1} = θ_t − k·η·λ·θ_t − u"
        ),
        wrong=(
            "def apply_gradients(self, grads_and_vars, **kwargs):\n"
            "    self._decay(variables)  # runs again on every micro-step\n"
            "    return super().apply_gradients(grads_and_vars, **kwargs)"
        ),
        right=(
            "def _resource_apply_dense(self, grad, var, apply_state=None):\n"
            "    var.assign_sub(lr * self.weight_decay * var)"
        ),
        confirm="Set the decay to 0: the finding disappears.",
        fix="Decay in the update rule itself, which runs once a step and variable.",
    ),
    Code(
        name="momentum-repeated",
        phases=("slot", "variable"),
        signature="the momentum was applied k times",
        meaning=(
            "The velocity is advanced or applied several times in one step, so old "
            "gradients weigh too much while the newest weighs right."
        ),
        mathematics=(
            "expected: θ_{t+1} = θ_t + μ·v_t − η·g\n"
            "observed: θ_{t+1} = θ_t + k·μ·v_t − η·g"
        ),
        wrong=("for _ in replicas:\n    var.assign_add(momentum * velocity)"),
        right="var.assign_add(momentum * velocity - lr * grad)",
        confirm="The first step, where the velocity is 0, is right.",
        fix="Advance the velocity once a step, in the update rule.",
    ),
    Code(
        name="weight-decay-missing",
        phases=("variable", "reduced_gradient"),
        signature="the residual is the decay term, or a part of it",
        meaning=(
            "On the cluster the weights do not decay: the decay is done in a method "
            "that a strategy's path does not call, or in Python outside the graph. Or "
            "replicas should add shares of it to their gradients, and some do not."
        ),
        mathematics=(
            "expected: θ_{t+1} = θ_t − η·λ·θ_t − u\nobserved: θ_{t+1} = θ_t − u"
        ),
        wrong=(
            "def minimize(self, loss, var_list, **kwargs):\n"
            "    self._decay(var_list)  # apply_gradients never comes here\n"
            "    return super().minimize(loss, var_list, **kwargs)"
        ),
        right=(
            "def _resource_apply_dense(self, grad, var, apply_state=None):\n"
            "    var.assign_sub(lr * self.weight_decay * var)"
        ),
        confirm="Feed a zero gradient: the variable should shrink and does not.",
        fix="Put the decay where every path passes: in the update rule.",
    ),
    Code(
        name="hyperparameter-differs",
        phases=("variable",),
        signature="the update fits another learning rate (or other setting)",
        meaning=(
            "The update has the right direction but fits another value of a "
            "hyperparameter: a schedule reads another step, or a Python number was "
            "captured or scaled on the cluster only."
        ),
        mathematics=(
            "expected: θ_{t+1} = θ_t − η·d\nobserved: θ_{t+1} = θ_t − η'·d, η' ≠ η"
        ),
        wrong=(
            "learning_rate = 0.1 * strategy.num_replicas_in_sync  # and a summed loss"
        ),
        right="learning_rate = 0.1",
        confirm=(
            "Print the hyperparameter in the step, on every replica and on one device."
        ),
        fix=(
            "Make it equal on both. If it is scaled with the number of replicas on "
            "purpose, say so with --expect hyperparameter-differs."
        ),
    ),
    Code(
        name="iterations-wrong",
        phases=("iterations",),
        signature="the step counter is k times the number of steps",
        meaning=(
            "optimizer.iterations advances more or less than once a step: by every "
            "replica, micro-step or sub-optimizer. Schedules and bias corrections that "
            "read it run too fast or too slowly."
        ),
        mathematics="expected: iterations = t\nobserved: iterations = k · t",
        wrong=(
            "def apply_gradients(self, grads_and_vars, **kwargs):\n"
            "    self.iterations.assign_add(1)  # the base class does it as well\n"
            "    return super().apply_gradients(grads_and_vars, **kwargs)"
        ),
        right=(
            "def apply_gradients(self, grads_and_vars, **kwargs):\n"
            "    return super().apply_gradients(grads_and_vars, **kwargs)"
        ),
        confirm="Print optimizer.iterations after each step.",
        fix="Let exactly one apply_gradients a step advance the counter.",
    ),
    Code(
        name="accumulation-scale",
        phases=("reduced_gradient", "applied_gradient"),
        signature="ratio k, r/k in the last window, or weights, over k micro-steps",
        meaning=(
            "Gradients are accumulated over k micro-steps and scaled wrongly: not "
            "divided at all, divided each time again, or by k in a last window that "
            "has only r < k micro-steps."
        ),
        mathematics=(
            "expected: Σ over micro-steps of g / (examples of all of them)\n"
            "observed: k times that; or r/k of it in a partial window"
        ),
        wrong="accumulator.assign_add(g)  # g is the mean of one micro-batch",
        right="accumulator.assign_add(g * micro_examples / window_examples)",
        confirm="With k = 1 the finding disappears.",
        fix="Weigh each micro-step by its examples over those of the whole window.",
    ),
)
