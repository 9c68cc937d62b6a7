"""A narrower dtype on the way of some replicas' gradients alone: a warning."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from distbench.compare.arrays.bounds import find_roundoff
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.narrow_scales import SMALLEST
from distbench.diagnose.hypotheses.reduction import list_subsets
from distbench.diagnose.names import name_replicas
from distbench.trace import SUMMED
from distbench.trace.numbers import round_to


def explain_by_rounding_of_some(context: Context) -> Iterator[Hypothesis]:
    """A sum to which some replicas bring what they round, and others what they have.

    The wider numbers of the others hide in the sum that any were narrow. But what each
    replica has is known, and so is what comes of it: nothing is fitted.

    Args:
        context: The wrong values.
    """
    if context.phase not in SUMMED or context.replicas == 1:
        return
    terms = {
        number: (case, found)
        for number, case in context.list_cases()
        if len(found := context.find_terms(case)) == context.replicas
    }
    for dtype in SMALLEST if terms else ():
        u = find_roundoff(dtype)
        narrow = {
            number: [round_to(term, dtype) for term in found]
            for number, (case, found) in terms.items()
            if u > find_roundoff(case.dtype) > 0
        }
        for kept, rounded in list_subsets(context) if narrow else ():
            yield Hypothesis(
                code="lower-precision",
                predicted={
                    number: np.asarray(
                        sum(terms[number][1][r] for r in kept)
                        + sum(each[r] for r in rounded)
                    )
                    for number, each in narrow.items()
                },
                detail=f"the gradient of {name_replicas(rounded)} was rounded to "
                f"{dtype} before the sum, and no other one was",
                replicas=rounded,
            )
