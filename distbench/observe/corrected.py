"""The cluster once more, with the right value in the place of a wrong one."""

from __future__ import annotations

from dataclasses import replace

from distbench.evidence import Evidence, Tier
from distbench.fed import Fed
from distbench.observe.errand import Errand
from distbench.observe.reading import list_reads
from distbench.observe.saved import SAVED
from distbench.observe.trainers import start_trainers
from distbench.trace import STATE, Phase, Trace, Values, merge_traces
from distbench.trace.files import read_trace


def observe_corrected(
    errand: Errand, tier: Tier, phase: Phase, evidence: Evidence
) -> Evidence:
    """Run the cluster once more, with the reference's value in place of a wrong one.

    Args:
        errand: What was run; as much time as it had is given again.
        tier: The tier in which it runs.
        phase: The phase at which the reference's gradient is put in.
        evidence: The evidence of the run that was wrong.

    Returns:
        The evidence with what the corrected run left behind: slots, variables and
        iterations.

    Raises:
        ClusterError: The run did not get to its end.
    """
    errand = errand.begin_again()
    payload = errand.make_payload(
        tiers=[tier], shards=list(evidence.reference.shards), corrected=phase
    )
    payload["reads"] = list_reads(errand, [tier])
    if errand.scenario.restore_from:
        payload["restored"] = str(errand.folder / SAVED)
    with start_trainers(errand) as trainers:
        for job in ("prepare", "train"):
            trainers.call(job, payload)
    name = f"corrected-{tier}"
    parts = [read_trace(errand.folder, f"{name}-{task}") for task in errand.trainers]
    return put_right(evidence, merge_traces(str(errand.spec), parts))


def put_right(evidence: Evidence, corrected: Trace) -> Evidence:
    """The evidence of a run that was wrong, with what a corrected one left behind.

    What one device was fed with is what the run that was wrong had; of a corrected run
    it says nothing. What a step makes of its variables that run tells, though: in this
    one the right value stands in the place of what it made of them.

    Args:
        evidence: Of the run that was wrong.
        corrected: What the cluster recorded when the right value was put in.
    """
    left = Values(corrected.values).keep(lambda key: key.phase in STATE)
    known = evidence.observed.variables
    observed = replace(corrected, values=left, variables=known)
    return replace(evidence, observed=observed, fed=Fed())
