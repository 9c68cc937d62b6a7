"""State that is off by a multiple of what a sum is off by lies beside it."""

from __future__ import annotations

import numpy as np
import pytest
from verdict_samples import make_finding

from distbench.diagnose.stages.beside import goes_before
from distbench.evidence import Evidence
from distbench.trace import WHOLE, Phase, Trace, TraceKey, Value, VariableInfo

FIRST = make_finding(
    phase="reduced_gradient", variable="w", variables=("w",), ratio=None
)
FOUND = make_finding(phase="variable", variable="kept", variables=("kept",), ratio=None)


def make_evidence(of_sum: list[float], of_kept: list[float]) -> Evidence:
    """A sum and state that are so much larger than on one device, in one step."""

    def put(name: str, errors: tuple[list[float], list[float]], replica: int) -> Trace:
        places: tuple[tuple[Phase, str], ...]
        places = (("reduced_gradient", "w"), ("variable", "kept"))
        values: dict[TraceKey, Value] = {
            TraceKey(step=0, phase=phase, variable=path, replica=replica): np.add(
                1.0, error
            )
            for (phase, path), error in zip(places, errors, strict=True)
        }
        infos = tuple(
            VariableInfo(
                path=path, role="variable", shape=(len(error),), dtype="float64"
            )
            for (_, path), error in zip(places, errors, strict=True)
        )
        return Trace(name=name, replicas=1, shards=(1,), variables=infos, values=values)

    none = [0.0] * len(of_sum), [0.0] * len(of_kept)
    return Evidence(
        tier="bounded",
        reference=put("reference", none, WHOLE),
        observed=put("cluster", (of_sum, of_kept), 0),
    )


@pytest.mark.parametrize(
    ("of_sum", "of_kept", "before"),
    [
        ([1.0, -2.0], [0.5, -1.0], True),
        ([1.0, -2.0], [0.5, 1.0], False),
        ([5.0], [-0.3], False),
        ([5.0, 5.0], [-0.3, -0.3], False),
    ],
    ids=["multiple", "other", "one-number", "equal-numbers"],
)
def test_of_one_number_no_other_is_a_multiple(
    of_sum: list[float], of_kept: list[float], before: bool
) -> None:
    seen = make_evidence(of_sum, of_kept)
    assert goes_before(FOUND, FIRST, seen, seen) == before
