"""What holds of every fault that is drawn: of some in the unit tests, of many in the
sweeps.
"""

from __future__ import annotations

import numpy as np

from distbench.faults.generated import Generated
from distbench.samples.drawn.gradient import compute_gradients
from distbench.split import shard_slices


def check_expected(made: Generated) -> None:
    """What is expected names things of the program."""
    fault, plan = made.fault, made.facts.plan
    assert fault.clusters == (made.cluster,)
    assert fault.variables
    assert len(set(fault.variables)) == len(fault.variables)
    of_model = fault.phase.endswith("gradient") or fault.code == "update-repeated"
    if of_model:
        assert set(fault.variables) <= set(plan.order)
    assert (fault.phase == "loss") == (fault.variables == ("",))
    replicas = fault.list_replicas(made.cluster)
    assert replicas is None or len(set(replicas)) == len(replicas) > 0


def check_gradient(made: Generated) -> None:
    """The shards' gradients add up to the whole batch's."""
    plan = made.facts.plan
    values, batch = plan.problem.draw_values(), plan.problem.draw_batch(0)
    whole = compute_gradients(plan.problem, values, batch, slice(None), 1.0)
    for name in plan.order:
        np.testing.assert_allclose(
            made.facts.total(name), whole.dense[name], rtol=1e-6, atol=1e-12
        )


def check_shards(made: Generated) -> None:
    """Shards are uneven, and every replica has a part of every gradient."""
    facts = made.facts
    assert len(set(facts.shards)) > 1
    assert sum(facts.shards) == facts.plan.problem.examples
    assert shard_slices(facts.shards)[0].start == 0
    for name in facts.names:
        assert all(np.any(term.dense[name]) for term in facts.terms)
