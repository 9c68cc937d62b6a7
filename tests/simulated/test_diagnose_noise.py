"""Noise that joins gradients before their sum, and what only looks like it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import add_up, add_values, map_values, scale
from training_simulator import KERNEL, TRAINED, Fault, observe
from wrong_steps import add_noise, add_to_each, reduce_some

from distbench.diagnose.judge import judge

DRAWS = ("noise.py:3",)


def add_noise_to_each(values):
    return add_values([add_noise(value) for value in values])


def rise(values):
    """Elements are multiplied by 0.4 to 1.9, the last ones most."""

    def multiply(array):
        factors = np.linspace(0.4, 1.9, array.size).reshape(array.shape)
        return array * factors.astype(array.dtype)

    return map_values(add_values(values), multiply)


@pytest.mark.parametrize(
    ("change", "draws", "code"),
    [
        (add_noise_to_each, DRAWS, "nonlinear-before-reduction"),
        (add_noise_to_each, (), "unexplained"),
        (add_noise_to_each, None, "unexplained"),
        (rise, DRAWS, "unexplained"),
        (rise, None, "unexplained"),
    ],
    ids=["noise", "drawn-by-nobody", "not-known", "rise", "rise-not-known"],
)
def test_noise_is_told_where_something_is_drawn_and_nothing_repeats(
    change, draws, code
):
    fault = Fault(reduce=reduce_some([KERNEL], change))
    # What a rise adds of 30 numbers has nothing to do with their sizes under these.
    for seed in (0, 11, 12):
        width = 6 if change is rise else 12
        evidence = observe(fault, width=width, sparse=False, seed=seed, draws=draws)
        (finding,) = judge(evidence).findings
        assert (finding.code, finding.variables) == (code, (KERNEL,))
        assert ("adds noise" in finding.explanation) == (code != "unexplained")


SEEDS = [f"{replica} 7" for replica in range(3)]
"""Those of the replicas; one device has the first one's."""


def draw(number, gradients):
    """What a replica of a number adds."""
    rng = np.random.default_rng(number)
    return {k: 0.1 * rng.normal(size=gradients[k].shape) for k in TRAINED}


def join_draws(gradients, number):
    return add_to_each(draw(number, gradients))(gradients)


def add_own_draws(share=3**-0.5, of_gradient=1.0, seeds=SEEDS):
    """What is seen of replicas that each add a share of what their own seeds give."""

    def reduce(locals_, step):
        own = [
            {k: scale(v, of_gradient) + share * draw(r, g)[k] for k, v in g.items()}
            for r, g in enumerate(locals_)
        ]
        return [{k: v.astype(np.float32) for k, v in add_up(own).items()} for _ in own]

    evidence = observe(
        Fault(reduce=reduce),
        replicas=3,
        sparse=False,
        draws=DRAWS,
        alone=lambda gradients: join_draws(gradients, 0),
    )
    observed, reference = evidence.observed, evidence.reference
    handed: dict = {}
    for step in range(2):
        for replica in range(3):
            found = dict(
                observed.select(step=step, phase="local_gradient", replica=replica)
            )
            own = join_draws({key.variable: v for key, v in found.items()}, 0)
            for key in found:
                handed[replace(key, phase="reduced_gradient")] = own[key.variable]
    return change_evidence(
        replace(
            evidence,
            observed=replace(
                observed, notes={**observed.notes, "seeds": {DRAWS[0]: seeds}}
            ),
            reference=replace(
                reference, notes={**reference.notes, "seeds": {DRAWS[0]: SEEDS[:1]}}
            ),
        ),
        apart=replace(reference, values=handed),
    )


@pytest.mark.parametrize("share", [1.0, 3**-0.5, 1 / 3])
def test_numbers_by_own_seeds_are_told_where_one_device_adds_some(share):
    (finding,) = judge(add_own_draws(share)).findings
    assert finding.code == "nonlinear-before-reduction"
    assert finding.phase == "reduced_gradient"
    assert set(finding.variables) == set(TRAINED)
    assert f"draws other numbers, at {DRAWS[0]}" in finding.explanation


@pytest.mark.parametrize(
    "options",
    [{"seeds": SEEDS[:1]}, {"of_gradient": 2.0}, {"share": 30.0}],
    ids=["seeds-of-one-device", "of-the-gradient", "far-too-large"],
)
def test_other_numbers_by_own_seeds_are_no_such_addition(options):
    findings = judge(add_own_draws(**options)).findings
    assert findings
    assert not any("draws other numbers" in f.explanation for f in findings)
