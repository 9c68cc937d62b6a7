"""Of several causes the one is named that explains most, and of equals the first."""

from __future__ import annotations

import numpy as np
import pytest
from training_simulator import KERNEL, observe

from distbench.compare.measure import Margin
from distbench.compare.pair import GLOBAL, Pair
from distbench.diagnose.context import Context, Hypothesis
from distbench.diagnose.rank import find_best
from distbench.trace import TraceKey

KEY = TraceKey(step=0, phase="variable", variable=KERNEL, replica=0)


@pytest.mark.parametrize(
    ("left", "best"),
    [
        ((0.3, 0.2, 0.1), 2),
        ((0.1, 0.2, 0.1), 0),
        ((0.104, 0.1), 0),
        ((0.2, 0.0, 0.0), 1),
        ((2.0, 1.5), 0),
    ],
    ids=["more", "equal", "nearly-equal", "all", "nothing"],
)
def test_the_first_of_those_that_explain_most_is_the_best(left, best):
    """Each leaves a share of the error, which is 1 for every element."""
    wrong = Pair(
        key=KEY,
        relation="reference",
        against=GLOBAL,
        observed=np.ones(4),
        expected=np.zeros(4),
        margin=Margin(),
        dtype="float32",
    )
    context = Context(evidence=observe(), phase="variable", cases=(wrong,))
    causes = [
        Hypothesis(code=str(number), predicted={0: np.full(4, 1 - share)}, detail="")
        for number, share in enumerate(left)
    ]
    found = find_best(context, causes)
    assert found is not None
    assert found.hypothesis is causes[best]
    assert found.confidence == pytest.approx(max(0, 1 - left[best]))
    assert found.full == (left[best] == 0)
