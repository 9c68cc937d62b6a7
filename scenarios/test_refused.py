"""Would catch a combination that TensorFlow refuses and a bench blames on the subject.

https://github.com/tensorflow/tensorflow/pull/37908 turned
`experimental_aggregate_gradients=False` off for parameter servers and central storage.
"""

from __future__ import annotations

import pytest


@pytest.mark.scenarios(
    workloads=["linear"],
    clusters=["central:2", "ps:2+1"],
    paths=["user", "none"],
    kinds=["central", "ps"],
)
def test_framework_refuses(check):
    verdict = check()
    assert {str(run.status) for run in verdict.runs} == {"refused"}
    assert "experimental_aggregate_gradients" in verdict.runs[0].message
