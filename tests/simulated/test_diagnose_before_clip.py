"""Some sums that go wrong before a clip by the norm of all variables."""

from __future__ import annotations

import pytest
from gradient_values import add_values, clip_all, measure_all, scale, to_array
from swept import swept
from training_simulator import BIAS, HEAD, KERNEL, TABLE, TRAINED, Fault, observe

from distbench.diagnose.judge import judge

LIMIT = 0.3
SOME = 7.8
"""What the norms of some steps alone exceed."""

WAYS = {
    "variable-not-reduced": lambda values, r: values[r],
    "mean-instead-of-sum": lambda values, r: scale(add_values(values), 1 / len(values)),
    "double-reduction": lambda values, r: scale(add_values(values), len(values)),
    "replica-dropped": lambda values, r: add_values(values[1:]),
}


def clip_to(limit):
    """As one device does it, of which nothing is wrong."""
    return lambda gradients: clip_all(gradients, limit)


def reduce_in(ways, rescale=lambda gradients, r: clip_all(gradients, LIMIT)):
    """Some variables in ways of their own, and then all scaled by one number."""

    def reduce(locals_, step):
        found = []
        for r in range(len(locals_)):
            total = {}
            for path in locals_[0]:
                way = ways.get(path, lambda values, _: add_values(values))
                total[path] = to_array(way([to_array(g[path]) for g in locals_], r))
            found.append(rescale(total, r))
        return found

    return Fault(reduce=reduce)


@pytest.mark.first(4)
@pytest.mark.parametrize("replicas", [2, *swept(3)])
@pytest.mark.parametrize("variable", [KERNEL, BIAS])
@pytest.mark.parametrize("code", WAYS)
def test_the_variable_is_named_and_not_what_the_clip_makes_of_the_others(
    code, variable, replicas
):
    evidence = observe(
        reduce_in({variable: WAYS[code]}),
        alone=clip_to(LIMIT),
        replicas=replicas,
        sparse=False,
        steps=3,
    )
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == (code, "reduced_gradient")
    assert finding.variables == (variable,)
    assert (
        f"all are scaled to a global norm of at most {LIMIT:g}" in finding.explanation
    )


@pytest.mark.parametrize("code", WAYS)
def test_steps_that_are_not_clipped_show_the_same(code):
    """There the other variables are right."""
    fault = reduce_in(
        {KERNEL: WAYS[code]}, lambda gradients, r: clip_all(gradients, SOME)
    )
    evidence = observe(fault, alone=clip_to(SOME), replicas=2, sparse=False, steps=3)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.variables) == (code, (KERNEL,))


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_added_up_for_the_norm(way):
    """The replicas' own gradients of the table are in slices, what they make is not."""
    evidence = observe(
        reduce_in({TABLE: WAYS[way]}), alone=clip_to(LIMIT), replicas=2, steps=3
    )
    (finding,) = judge(evidence).findings
    code = {"mean-instead-of-sum": "sparse-averaged"}.get(way, way)
    assert (finding.code, finding.variables) == (code, (TABLE,))


def test_two_variables_have_their_own_causes():
    fault = reduce_in(
        {BIAS: WAYS["variable-not-reduced"], HEAD: WAYS["double-reduction"]}
    )
    evidence = observe(fault, alone=clip_to(LIMIT), sparse=False, steps=3)
    found = {f.variables: f.code for f in judge(evidence).findings}
    assert found == {(BIAS,): "variable-not-reduced", (HEAD,): "double-reduction"}


def test_sums_that_are_all_right_are_clipped_as_on_one_device():
    judgement = judge(
        observe(reduce_in({}), alone=clip_to(LIMIT), sparse=False, steps=3)
    )
    assert judgement.findings == ()


@pytest.mark.parametrize("ways", [{}, {KERNEL: WAYS["double-reduction"]}])
def test_another_number_of_each_replica_is_no_clip(ways):
    """Their norms are no limit, whatever one device does."""

    def weigh(gradients, r):
        factor = (1.1 + 0.3 * r) * LIMIT / measure_all(gradients)
        return {path: scale(g, factor) for path, g in gradients.items()}

    evidence = observe(
        reduce_in(ways, weigh), alone=clip_to(LIMIT), replicas=2, sparse=False, steps=3
    )
    findings = judge(evidence).findings
    assert findings[0].code == "scale-error"
    assert set(TRAINED) <= {path for f in findings for path in f.variables}
