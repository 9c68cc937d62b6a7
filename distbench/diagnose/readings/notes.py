"""What a verdict says of a run besides its findings.

Each note is one sentence, or `""` where there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from distbench.compare.comparison import Comparison
from distbench.compare.vacuity import find_uncompared
from distbench.details import Compared
from distbench.diagnose.names import name_steps, tell_more
from distbench.diagnose.readings.reading import Reading
from distbench.evidence import Evidence
from distbench.spelling import spell, spell_given
from distbench.trace import INITIAL, WHOLE, SparseRows, Trace, TraceKey, Value
from distbench.trace.numbers import densify, is_finite
from distbench.trace.packed import PACKED
from distbench.trace.reshaped import RESHAPED


def note_sizes(reference: Trace) -> str:
    """Which steps have a batch of another size than the first one."""
    places = cast(Sequence[int], reference.notes.get("places", ()))
    told = []
    for step, shards in reference.resized.items():
        if step >= reference.steps:
            continue  # one that was trained before a restore
        place = places[step] if step < len(places) else step
        which = f" (batch {place} of the epoch)" if place != step else ""
        told.append(f"step {step}{which} has {' + '.join(map(str, shards))}")
    if not told:
        return ""
    usual = " + ".join(map(str, reference.shards))
    return f"note: {', '.join(told)} examples, in place of {usual}"


def note_padded(reference: Trace) -> str:
    """Whether replicas had read examples of other lengths, each padded by itself."""
    padded = cast(Sequence[bool], reference.notes.get("padded", ()))
    steps = [step for step, is_it in enumerate(padded) if is_it]
    if not steps:
        return ""
    return (
        f"note: in {name_steps(steps)} replicas read examples padded to other "
        "lengths; zeros fill them up to the longest of all, on the cluster and on one "
        "device, so a step that makes something else of longer padding is not seen, "
        "and one that takes another value for padding takes these zeros for data"
    )


def note_not_finite(reference: Trace) -> str:
    """From when on what one device trains is NaN or Inf, and can be no measure."""
    found = find_not_finite(reference)
    if found is None:
        return ""
    step, path = found
    return (
        f"note: on one device numbers of '{path}' are not finite from step {step} on, "
        "and show nothing from then on"
    )


def find_not_finite(reference: Trace) -> tuple[int, str] | None:
    """The step from which on a trained variable is NaN or Inf to the end, and which.

    What was so from the start on, as in rows that nobody looks up, is not meant.
    """
    trained = {
        v.path for v in reference.variables if v.role == "variable" and v.trainable
    }
    found = None
    for step in reversed(range(reference.steps)):
        states = reference.select(step=step, phase="variable", replica=WHOLE)
        path = next(
            (
                key.variable
                for key, value in states
                if key.variable in trained and _became_infinite(reference, key, value)
            ),
            None,
        )
        if path is None:
            break
        found = step, path
    return found


def tell_where(reference: Trace, step: int, path: str) -> str:
    """Where to look for what is not finite in a variable.

    A rule may spread what the gradient of another one has, as a clip of all does.
    """
    finite: dict[str, bool] = {}
    for key, value in reference.select(
        step=step, phase="local_gradient", replica=WHOLE
    ):
        finite[key.variable] = is_finite(value) and finite.get(key.variable, True)
    look = "look for NaN and Inf in the data and in the loss"
    if not finite.get(path, False):
        return look
    for other in (name for name, is_right in finite.items() if not is_right):
        return f"the gradient of '{other}' is not finite there, so {look}"
    return "its gradient is finite, so look at what is made of that"


def _became_infinite(reference: Trace, key: TraceKey, value: Value) -> bool:
    infinite = ~np.isfinite(densify(value))
    start = reference.get(replace(key, step=INITIAL))
    if start is None or not infinite.any():
        return bool(infinite.any())
    return bool((infinite & np.isfinite(densify(start))).any())


def note_left_out(reference: Trace) -> str:
    """Which examples of a Keras model no replica gets."""
    counts = cast(Sequence[int], reference.notes.get("left_out", ()))
    total = sum(counts)
    if not total:
        return ""
    examples = sum(sum(reference.get_shards(step)) for step in range(len(counts)))
    return (
        f"note: {total} of {total + examples} examples are left out, so that shards "
        f"are even; fit counts uneven ones alike, which {spell('split')} shows"
    )


def note_rows(reference: Trace, paths: Sequence[str]) -> str:
    """Names a variable whose rule minds how the rows of a sparse gradient come.

    Args:
        reference: What one device recorded.
        paths: Those variables, by their paths.
    """
    if not paths:
        return ""
    gradients = {
        key.variable: value
        for key, value in reference.select(phase="local_gradient", replica=WHOLE)
    }
    sparse = {v for v, each in gradients.items() if isinstance(each, SparseRows)}
    owners = {info.path: info.owner for info in reference.variables}
    trained = gradients.keys() - sparse
    dense = [path for path in paths if owners.get(path) in trained]
    if dense and sparse:
        return (
            f"note: '{dense[0]}', of which the gradient is dense, comes out otherwise "
            f"if the repeated rows of a sparse gradient, that of '{min(sparse)}', are "
            "added up before; what is made of all gradients together, as a clip by "
            "their global norm is, takes each of these rows by itself"
        )
    return (
        f"note: the rule of '{paths[0]}' gives another result if the repeated rows "
        "of a sparse gradient are added up before; add them up in the rule itself"
    )


def note_reshaped(observed: Trace) -> str:
    """Names a variable that has another shape on the cluster than on one device."""
    found = cast(
        Mapping[str, Sequence[Sequence[int]]], observed.notes.get(RESHAPED, {})
    )
    if not found:
        return ""
    path, (seen, due) = next(iter(found.items()))
    more = f", as are {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"note: '{path}' has the shape {list(seen)} on the cluster and {list(due)} on "
        f"one device, so it is not compared{more}"
    )


def note_packed(observed: Trace) -> str:
    """Names a variable for which an optimizer is handed more than its gradient."""
    found = _name_noted(observed, PACKED)
    return found and (
        f"note: what the optimizer is handed for {found} is no gradient of "
        "its shape, and is judged by what becomes of it"
    )


def note_kept_tensors(observed: Trace) -> str:
    """Names what the replicas of a process may have overwritten for each other."""
    found = _name_noted(observed, "kept_tensors")
    return found and (
        f"note: the step keeps tensors of its batch as {found} on an object that the "
        "replicas of a process share: behind a merge call, such as apply_gradients or "
        "all_reduce, each reads what the last replica has kept; pass such tensors on "
        "as values"
    )


def note_unread(observed: Trace) -> str:
    """Names the methods of a program that would give it its data, and gave none."""
    found = _name_noted(observed, "unread_feeds")
    return found and (
        f"note: the program has {found} as well, which was not called: 'data' comes "
        "first, then 'dataset_fn', then 'dataset'; what is set to None is not there"
    )


def _name_noted(observed: Trace, note: str) -> str:
    """The first that a trace notes, and how many more; empty where there is none."""
    found = cast(Sequence[str], observed.notes.get(note, ()))
    return f"'{found[0]}'{tell_more(found)}" if found else ""


def note_cut(places: Sequence[TraceKey]) -> str:
    """Names a variable of which a step leaves something else where it is not cut.

    Args:
        places: Those of the first such step, by the paths of shards.
    """
    if not places:
        return ""
    first = places[0]
    return (
        f"note: {first.phase} '{first.variable}' comes out otherwise in step "
        f"{first.step} of one device where no variable is cut into shards; what looks "
        "at a whole variable, such as a norm of each one, a trust ratio, a name or its "
        "first rows, sees each shard as a variable of its own"
    )


def note_reduction(reading: Reading, comparisons: Sequence[Comparison]) -> str:
    """Says so where neither gradients nor what they are added up to can be judged."""
    seen = reading.evidence.observed.select(phase="reduced_gradient")
    is_compared = any(c.phase == "reduced_gradient" for c in comparisons)
    if reading.first_known or is_compared or next(seen, None) is None:
        return ""
    return (
        "note: the reduction was not compared either, since the step makes something "
        "else of its gradients than a multiple before it, as by a clip"
    )


def note_compiled(evidence: Evidence) -> str:
    """Says so where XLA leaves no phase but the last ones to be compared."""
    if not evidence.subject.compiled:
        return ""
    return (
        "note: XLA compiles the step as a whole, so what it leaves was compared and "
        f"nothing on the way there; {spell_given('jit', False)} runs it without"
    )


def note_uncompared(evidence: Evidence, compared: Sequence[Compared]) -> str:
    """Names a variable that was trained and compared with nothing, and why it was.

    Args:
        evidence: What was seen.
        compared: What was held against what.
    """
    found = find_uncompared(evidence, compared)
    if not found:
        return ""
    led = ""
    if found[0] in evidence.subject.undetermined:
        led = (
            "more than its gradient leads it, so what follows from this does not tell "
            "what it has to be, and "
        )
    return (
        f"'{found[0]}' was trained, and compared with nothing: {led}one device is no "
        "measure of it; use a loss of which the global batch is one"
    )


def note_start(evidence: Evidence) -> str:
    """Names a variable whose first value cannot be compared."""
    if not evidence.subject.drawn_anew:
        return ""
    first = evidence.subject.drawn_anew[0]
    return (
        f"note: '{first}' starts from other values in every run, "
        "whatever the seed; the cluster was given those of one device"
    )
