"""Whether losses read the replicas' own copies of what is meant to be that of all."""

from __future__ import annotations

from distbench.compare.arrays.noise import Noise
from distbench.compare.state.joint import find_first_apart, list_read_apart
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.names import name_replicas, name_variables
from distbench.evidence import Evidence
from distbench.verdict import Finding

_AGAINST = "one device, the same shard from what all examples made of it"
_ADVICE = (
    "A variable with synchronization=ON_READ has a copy for each replica, and its "
    "aggregation makes one value of them only where it is read outside of a replica's "
    "step. Read what the copies make together (all_reduce of its read_value()), or "
    "make it without ON_READ, so that the aggregation joins what the replicas assign. "
    "Where each is meant to read its own, say so with aggregation NONE or "
    "ONLY_FIRST_REPLICA."
)


def find_kept_apart(
    evidence: Evidence, noise: Noise, judgement: Judgement
) -> Finding | None:
    """Name such state of a step in which replicas have what their own copies lead to.

    Nothing where what replicas make of their own shards was not needed to explain it.
    """
    if not judgement.of_own or evidence.tier != "bounded":
        return None
    names = list_read_apart(evidence, noise)
    apart = find_first_apart(evidence, noise) if names else None
    if apart is None:
        return None
    code, key = "statistics-not-synchronized", apart.key
    what = f"{key.phase} of '{key.variable}'" if key.variable else key.phase
    each = "its own copy" if len(names) == 1 else "its own copies"
    has = "that" if len(names) == 1 else "those"
    return Finding(
        code=code,
        phase=key.phase,
        step=key.step,
        variable=names[0],
        variables=names,
        replicas=apart.replicas,
        ratio=None,
        error=apart.error,
        bound=apart.bound,
        explanation=(
            f"Step {key.step}, {what}, {name_replicas(apart.replicas)}: each replica "
            f"reads {each} of {name_variables(names)}, where one device has {has} of "
            "all examples: from this its shards make up what the global batch gives, "
            f"and from their own copies they do not ({code}; error "
            f"{apart.error:.3g}, allowed {apart.bound:.3g}, against {_AGAINST}). "
            f"{_ADVICE}"
        ),
        confidence=1.0,
    )
