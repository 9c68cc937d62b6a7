"""Codes for parameter servers and their asynchronous steps."""

from distbench.codes.code import Code

_WRONG = "variable.assign(variable - lr * g)  # another worker writes in between"
_RIGHT = "variable.assign_sub(lr * g, use_locking=True)"

CODES = (
    Code(
        name="lost-update",
        phases=("slot", "variable"),
        signature="the variable lacks the update of a step that was completed",
        meaning=(
            "A scheduled step finished, but its update is not in the variable: another "
            "worker read the old value before and wrote its own result after it. Of "
            "steps one at a time no other is there: a worker then left it out by "
            "itself."
        ),
        mathematics=(
            "expected: θ = θ_0 − Σ_{all steps} u_t\nobserved: θ = θ_0 − Σ_{t ≠ k} u_t"
        ),
        wrong=_WRONG,
        right=_RIGHT,
        confirm="With one worker the finding disappears.",
        fix="Use assign_add, assign_sub or the Apply ops, which change in place.",
    ),
    Code(
        name="extra-update",
        phases=("slot", "variable"),
        signature="one step's update is in the variable twice",
        meaning=(
            "A step was applied more than once. ClusterCoordinator.schedule runs a "
            "function at least once: when a worker fails, it is run again, and what it "
            "already wrote stays written. Of steps one at a time in which no task was "
            "lost, a worker repeated it by itself."
        ),
        mathematics="expected: θ = θ_0 − Σ_t u_t\nobserved: θ = θ_0 − Σ_t u_t − u_k",
        wrong=(
            "coordinator.schedule(step)  # writes several variables one after another"
        ),
        right=(
            "# make a repeated step harmless, or count steps on the servers and\n"
            "# restore a checkpoint after a failure"
        ),
        confirm="optimizer.iterations exceeds the number of scheduled steps.",
        fix="Expect repetition after a failure: restore, or make steps idempotent.",
    ),
    Code(
        name="stale-read",
        phases=("loss", "local_gradient", "slot", "variable"),
        signature="a step was computed from an earlier value of the variables",
        meaning=(
            "Loss and gradient are those of the step's own batch, but of the variables "
            "as they were some steps before it began: the program computes from a copy "
            "that it does not make anew in each step. Where the copy is a variable "
            "too, it is the one that is named. Under parameter servers a step may be "
            "overtaken while it runs; that is told of each, and is no finding. "
            "But a rule that reads a slot by one op and adds to it by another, with "
            "steps in flight, has what decays taken of a value that others have "
            "changed meanwhile. So has a moving statistic that goes to what a buffer "
            "keeps of the step before an earlier value."
        ),
        mathematics=(
            "expected: g_t = ∇ℓ(θ_t, x_t)\nobserved: g_t = ∇ℓ(θ_{t−k}, x_t)\n"
            "or a slot: m_t = m_{t−1} + (1 − β)(g_t − m_{t−k})"
        ),
        wrong=(
            "weights = [tf.identity(v) for v in variables]  # once, before the loop"
        ),
        right="weights = [tf.identity(v) for v in variables]  # in every step",
        confirm="Read the variables in the step itself: the finding disappears.",
        fix="Copy the variables in every step, or allow for the delay with --expect.",
    ),
)
