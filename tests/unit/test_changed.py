"""What is told beside what replicas do to gradients that add up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from verdict_samples import make_finding

from distbench.diagnose.judgement import Judgement
from distbench.diagnose.readings import changed
from distbench.verdict import Status

CLIPPED = make_finding(code=changed.CLIP, step=0, confidence=1.0)
BEGUN = make_finding(code="loss-not-scaled", phase="local_gradient", step=2)


@pytest.mark.parametrize(
    ("add_up", "steps", "codes"),
    [
        ({0, 1}, 3, [CLIPPED.code, BEGUN.code]),
        ({0, 1, 2}, 3, [CLIPPED.code]),
        ({0, 1}, 2, [CLIPPED.code]),
    ],
    ids=["begun", "add-up-throughout", "not-looked-into"],
)
def test_what_begins_later_is_told_beside_a_clip(monkeypatch, add_up, steps, codes):
    named = Judgement(status=Status.FAIL, findings=(CLIPPED,))
    told = Judgement(status=Status.FAIL, findings=(CLIPPED, BEGUN))
    for name, value in {
        "losses_add_up": lambda inside, step: True,
        "gradients_add_up": lambda inside, step: step in add_up,
        "take_sums": lambda evidence, inside, taken: evidence,
        "Reading": lambda evidence: evidence,
        "Weighed": lambda reading, noise: SimpleNamespace(explain=lambda: named),
    }.items():
        monkeypatch.setattr(changed, name, value)
    inside = SimpleNamespace(observed=SimpleNamespace(steps=steps))
    evidence = SimpleNamespace(inside=inside)
    whole = SimpleNamespace(explain=lambda: told)
    found = changed.tell_changed(evidence, None, 0, whole)
    assert [finding.code for finding in found.findings] == codes
