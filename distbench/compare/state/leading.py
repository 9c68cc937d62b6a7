"""What has a part in state: gradients, examples, or neither."""

from __future__ import annotations

from distbench.compare.arrays.copies import are_same
from distbench.compare.arrays.pair import Pair
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, VariableInfo


def is_trained(evidence: Evidence, variable: str) -> bool:
    """Whether a variable follows from gradients, its own or those of others."""
    if not shows_gradients(evidence):
        infos = evidence.observed.variables
        return any(v.path == variable and v.trainable for v in infos)
    return variable in evidence.subject.kept or has_gradient(evidence, variable)


def shows_gradients(evidence: Evidence) -> bool:
    """Whether any was seen; of a step that asks for several of each none is."""
    return bool(evidence.reference.trained or evidence.observed.trained)


def has_gradient(evidence: Evidence, variable: str) -> bool:
    """Whether a gradient of a variable was seen, on one device or on the cluster."""
    traces = evidence.reference, evidence.observed
    return any(variable in trace.trained for trace in traces)


def is_led(evidence: Evidence, pair: Pair) -> bool:
    """Whether the examples have a part in state, as far as one device tells.

    A counter is the same after the whole batch and after each shard alone. So is what
    follows from gradients where several updates of a step are fed to shards.
    """
    reference = evidence.reference
    if any(key.call > 0 for key in reference.values):
        return True
    return _has_part(reference, reference, pair.key.at(WHOLE))


def _has_part(alone: Trace, reference: Trace, key: TraceKey) -> bool:
    """Whether a shard alone gives something else than the whole batch.

    Args:
        alone: What each shard gives, by replica.
        reference: What the whole batch gives.
        key: What of it.
    """
    whole, found = reference.get(key), alone.get_replicas(key)
    if whole is None or not found:
        return True
    return not all(are_same(v, whole) for v in found)


def find_unled(evidence: Evidence) -> frozenset[str]:
    """State that neither gradients nor examples change on one device.

    Of the model an average of the weights before a step is such, and a counter; of the
    optimizer a learning rate that a schedule sets. Whatever else is wrong in a step,
    they do not follow from it.
    """
    reference = evidence.reference
    untrained = {
        info.path
        for info in reference.variables
        if info.role == "variable" and not is_trained(evidence, info.path)
    }
    led = {
        key.variable
        for key, _ in reference.select(phase="variable", replica=WHOLE)
        if key.variable in untrained
        and key.step != INITIAL
        and _has_part(reference, reference, key)
    }
    return frozenset(untrained) - led | _find_set_numbers(evidence)


def is_unmoved(evidence: Evidence, key: TraceKey) -> bool:
    """Whether the cluster's sums leave one device's state as its own sums do.

    What is wrong with it then does not come from these: it was there before them.
    """
    replay = evidence.fed.replays.get("reduced_gradient")
    value = None if replay is None else replay.get(key)
    due = evidence.reference.get(key.at(WHOLE))
    return value is not None and due is not None and are_same(value, due)


def is_number(info: VariableInfo) -> bool:
    """Whether a slot is one of the numbers that the rule is given.

    A single number that belongs to no variable is no average of gradients.
    """
    return not info.of and not info.shape


def find_counts(evidence: Evidence) -> frozenset[str]:
    """Numbers that neither gradients nor examples lead, such as a count of steps."""
    # One device may have state that the cluster lacks, and the reverse.
    known = (*evidence.observed.variables, *evidence.reference.variables)
    numbers = {info.path for info in known if is_number(info)}
    return find_unled(evidence) & numbers


def find_led_numbers(evidence: Evidence) -> frozenset[str]:
    """Numbers of the rule that are others after each replica's own gradients alone.

    Only where one device was fed with these, which is so if some state does not follow.
    """
    apart = evidence.fed.apart
    if apart is None:
        return frozenset()
    numbers = _list_numbers(evidence)
    return frozenset(
        key.variable
        for key, _ in evidence.reference.select(phase="slot", replica=WHOLE)
        if key.variable in numbers
        and key.step != INITIAL
        and _has_part(apart, evidence.reference, key)
    )


def _find_set_numbers(evidence: Evidence) -> frozenset[str]:
    """Those that are the same, whatever the gradients; see `find_led_numbers`."""
    if evidence.fed.apart is None:
        return frozenset()
    others = find_led_numbers(evidence) | {*evidence.subject.undetermined}
    return _list_numbers(evidence) - others


def _list_numbers(evidence: Evidence) -> frozenset[str]:
    return frozenset(
        info.path
        for info in evidence.reference.variables
        if info.role == "slot" and is_number(info)
    )
