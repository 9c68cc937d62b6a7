"""Sums of which some elements are the replica's own gradient."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_values import add_up
from sum_pairs import make_sum_pair
from training_simulator import KERNEL, Fault, observe

from distbench.diagnose.clues.context import Context
from distbench.diagnose.hypotheses.own_pieces import explain_by_parts
from distbench.diagnose.judge import judge

Array = np.ndarray


@pytest.mark.parametrize(
    ("keep", "words"),
    [
        (slice(2, None), "nobody sums rows 2 to 4 of '{}'"),
        (slice(3, 4), "nobody sums row 3 of '{}'"),
        (slice(0, None, 2), "nobody sums 18 elements of '{}'"),
    ],
)
def test_a_piece_that_nobody_sends_is_own_on_all_replicas(
    keep: slice, words: str
) -> None:
    def reduce(locals_: list[dict[str, Array]], step: int) -> list[dict[str, Array]]:
        held = []
        for gradients in locals_:
            total = add_up(locals_)
            total[KERNEL][keep] = gradients[KERNEL][keep]
            held.append(total)
        return held

    evidence = observe(Fault(reduce=reduce), replicas=3, sparse=False, steps=2)
    (finding,) = judge(evidence).findings
    assert finding.code == "missing-reduction"
    assert words.format(KERNEL) in finding.explanation
    assert "cut into pieces" in finding.explanation
    assert "on each replica others" not in finding.explanation


SENT = np.array([[1.0, 2.0, 4.0], [0.5, 1.0, 0.0]])
"""What two replicas have of three elements; the second one adds nothing to the last."""


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ([[1.5, 3.0, 4.0], [1.5, 3.0, 0.0]], "nobody sums element 2 of 'kernel'"),
        ([[1.5, 3.0, 4.0], [0.5, 1.0, 4.0]], "on each replica others"),
        ([[1.5, 2.0, 4.0], [0.5, 3.0, 4.0]], "on each replica others"),
        ([[1.5, 2.0, 4.0], [1.5, 1.0, 4.0]], "nobody sums element 1 of 'kernel'"),
        ([None, [1.5, 3.0, 0.0]], "and the rest are of its own gradient"),
    ],
    ids=["sum-is-own", "right-copy-is-sum", "others", "same", "not-seen"],
)
@pytest.mark.parametrize("in_rows", [False, True], ids=["dense", "rows"])
def test_where_others_add_nothing_its_own_speaks_for_neither(
    held: list, words: str, in_rows: bool
) -> None:
    """Right copies are no cases; of rows each has those that are wrong."""
    due = SENT.sum(axis=0)
    cases, right = [], set()
    for replica, seen in enumerate(held):
        if seen is None:
            continue
        wrong = np.not_equal(seen, due)
        rows = np.flatnonzero(wrong | (due > 2)) if in_rows else np.arange(3)
        pair = make_sum_pair(
            0, np.array(seen)[rows], list(SENT[:, rows]), rows if in_rows else None
        )
        key = pair.key.at(replica)
        if np.any(wrong):
            cases.append(replace(pair, key=key))
        else:
            right.add(key)
    context = Context(
        evidence=observe(),
        phase="reduced_gradient",
        cases=tuple(cases),
        right=frozenset(right),
    )
    (hypothesis,) = explain_by_parts(context)
    assert set(hypothesis.predicted) == set(range(len(cases)))
    if in_rows and words.startswith("nobody"):
        words = "nobody sums some elements of 'kernel'"
    assert words in hypothesis.detail


def test_a_number_that_nobody_sums_has_no_elements() -> None:
    terms = [np.array(1.0), np.array(2.0)]
    pair = make_sum_pair(0, terms[0], terms)
    cases = tuple(
        replace(pair, key=pair.key.at(r), observed=terms[r]) for r in range(2)
    )
    context = Context(evidence=observe(), phase="reduced_gradient", cases=cases)
    (hypothesis,) = explain_by_parts(context)
    assert "nobody sums 'kernel': there" in hypothesis.detail
