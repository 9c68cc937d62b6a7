"""Rules that take the slices of a row as gradients of their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distbench.codes import CODES
from distbench.compare.arrays.likeness import find_half
from distbench.compare.arrays.noise import Noise
from distbench.compare.arrays.ratio import are_near, fit_common_ratio
from distbench.compare.pairs.formed import Apart, find_apart, list_other_forms
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.names import name_replicas, tell_more
from distbench.evidence import Evidence
from distbench.trace import PHASES, SparseRows
from distbench.trace.numbers import Array
from distbench.verdict import Finding

_AGAINST = "one-device update with the observed gradient in one device's own rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cause:
    code: str
    words: str


_AS_CAME = _Cause(
    code="sparse-duplicates",
    words="it follows from the slices of a row as they came, and not from their sum: "
    "the replicas that have a row hand over a slice each, where one device has another "
    "number of them",
)
_AVERAGED = _Cause(
    code="sparse-averaged",
    words="a row is divided by the number of its slices, which on the cluster is that "
    "of the replicas that have it, and on one device another",
)
_COUNTED = _Cause(
    code="slot-repeated",
    words="it counts the slices of a row, which on the cluster are as many as the "
    "replicas that have it, and on one device another number",
)
_DENSE = _Cause(
    code="sparse-rows",
    words="the gradient is right, and the rule is handed other rows of it than on one "
    "device, where it has those alone that were looked up",
)
_SPARSE = _Cause(
    code="sparse-rows",
    words="the gradient is right, and the rule is handed rows of it, where one device "
    "has a dense one",
)


def find_formed(
    evidence: Evidence, noise: Noise, judgement: Judgement
) -> Finding | None:
    """What follows from right gradients on the cluster alone, by the form they have.

    Nothing where a variable has a finding of its own, from which that may follow.
    """
    known = {
        name
        for found in judgement.findings
        if not found.warning
        for name in (found.variable, *found.variables)
    }
    owners = {info.path: info.of for info in evidence.observed.variables}
    apart = [
        one
        for one in find_apart(evidence, noise, judgement.compared)
        if not known & {one.key.variable, owners.get(one.key.variable)}
    ]
    if not apart:
        return None
    step = apart[0].key.step
    first = min(
        (one for one in apart if one.key.step == step),
        key=lambda one: PHASES.index(one.key.phase),
    )
    alike = [one for one in apart if one.key.phase == first.key.phase]
    names = tuple(dict.fromkeys(one.key.variable for one in alike))
    cause = _name_cause(evidence, first, owners)
    return _make_finding(cause, [one for one in alike if one.key.step == step], names)


def _make_finding(cause: _Cause, apart: list[Apart], names: tuple[str, ...]) -> Finding:
    first = apart[0]
    worst = max(apart, key=lambda one: one.error)
    fit = fit_common_ratio((one.came - one.base, one.due - one.base) for one in apart)
    ratio = None if fit is None else fit.ratio
    replicas = tuple(sorted({one.key.replica for one in apart}))
    more = tell_more(names)
    numbers = [] if ratio is None else [f"ratio {ratio:.6g}"]
    numbers.append(f"error {worst.error:.3g}, allowed {worst.bound:.3g}")
    return Finding(
        code=cause.code,
        phase=first.key.phase,
        step=first.key.step,
        variable=names[0],
        variables=names,
        replicas=replicas,
        ratio=ratio,
        error=worst.error,
        bound=worst.bound,
        explanation=(
            f"Step {first.key.step}, {first.key.phase} of '{names[0]}'{more}, "
            f"{name_replicas(replicas)}: {cause.words} ({cause.code}; "
            f"{', '.join(numbers)}, against {_AGAINST}). {CODES[cause.code].fix}"
        ),
        confidence=1.0,
    )


def _name_cause(evidence: Evidence, apart: Apart, owners: dict[str, str]) -> _Cause:
    """By what the forms differ in, and how far the state moved of each."""
    key = apart.key
    forms = {
        other.variable: (seen, own)
        for other, seen, own in list_other_forms(
            evidence, apart.source, key.step, key.replica
        )
    }
    owner = owners.get(key.variable) or key.variable
    # Of a norm of all gradients any of them may be the one.
    seen, own = forms.get(owner) or next(iter(forms.values()))
    if not isinstance(own, SparseRows):
        return _SPARSE
    if not isinstance(seen, SparseRows) or not np.array_equal(
        np.unique(seen.indices), np.unique(own.indices)
    ):
        return _DENSE
    times = seen.count_rows() / np.maximum(1, own.count_rows())
    # A slot may be one number for all rows.
    if owner not in forms or times.shape != np.shape(apart.came)[:1]:
        return _AS_CAME
    moved, due = apart.came - apart.base, apart.due - apart.base
    more = times != 1
    column = times[more].reshape(-1, *(1 for _ in moved.shape[1:]))
    if _are_near(apart.dtype, moved[more] * column, due[more]):
        # Of k equal shares of a slice the squares add up to a k-th as well.
        return _AS_CAME if _are_copies(seen) else _AVERAGED
    if key.phase == "slot" and _are_near(apart.dtype, moved[more], due[more] * column):
        return _COUNTED
    return _AS_CAME


def _are_copies(slices: SparseRows) -> bool:
    """Whether there is another one of each slice, in the same row."""
    rows = slices.indices[:, np.newaxis].astype(np.float64)
    numbers = np.asarray(slices.values, np.float64).reshape(len(rows), -1)
    told = np.concatenate([rows, numbers], axis=1)
    return bool(np.all(np.unique(told, axis=0, return_counts=True)[1] > 1))


def _are_near(dtype: str, left: Array, right: Array) -> bool:
    """Whether half of the digits agree."""
    return are_near(left, right, share=find_half(dtype))
