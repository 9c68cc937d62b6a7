"""What the README claims, held against a run."""

from __future__ import annotations

import re

import pytest
from pages import PAGES, read_blocks

import distbench
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster


EXAMPLE = PAGES[0].parent / "docs" / "examples" / "my_optimizer.py"


def test_the_bug_of_the_readme_is_found_as_it_says() -> None:
    shown = [block.text for block in read_blocks(PAGES[0])]
    target = f"{EXAMPLE}:make_clipped_sgd"
    verdict = distbench.check(target, "mwms:2", workload="linear", tier="bounded")
    assert verdict.status is Status.FAIL
    told = verdict.findings[0].explanation
    assert any(_leave_noise_out(told) in _leave_noise_out(text) for text in shown), told


def _leave_noise_out(text: str) -> str:
    """A text in one line, without the bound: processors round in other places."""
    return re.sub(r"allowed \S+,", "allowed,", " ".join(text.split()))


def test_its_remedy_passes() -> None:
    def make_clipped_sgd():
        import tf_keras

        return tf_keras.optimizers.legacy.SGD(0.01, global_clipnorm=1.0)

    verdict = distbench.check(make_clipped_sgd, "mwms:2", workload="linear")
    assert verdict.status is Status.PASS, describe_verdict(verdict)
