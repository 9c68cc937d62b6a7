"""What is said of deviations that are no findings: undone later, or left undecided."""

from __future__ import annotations

from distbench.compare.arrays.ratio import are_same_factors
from distbench.compare.comparison import Comparison
from distbench.diagnose.stages.links import Chain
from distbench.diagnose.stages.scratch import list_scratch
from distbench.evidence import Evidence
from distbench.trace import UPDATED


def note_forgiven(evidence: Evidence, chain: Chain) -> str:
    """Names the first deviation that makes no difference in the end.

    A program that says that its losses are averaged has N times the gradients, and
    averages them.
    """
    n = float(evidence.observed.replicas)
    is_mean = evidence.subject.loss_reduction == "mean"
    meant = {"local_gradient": n, "reduced_gradient": 1 / n} if is_mean else {}

    def is_meant(one: Comparison) -> bool:
        factor = meant.get(one.phase)
        if factor is None or one.ratio is None:
            return False
        return are_same_factors(one.ratio, factor)

    forgiven = (link.comparison for link in chain.forgiven)
    found = [one for one in forgiven if not is_meant(one)]
    if not found:
        return ""
    first = found[0]
    alike = {
        c.variable for c in found if (c.step, c.phase) == (first.step, first.phase)
    }
    more = f" (and {len(alike) - 1} more)" if len(alike) > 1 else ""
    ratio = "" if first.ratio is None else f" (ratio {first.ratio:.6g})"
    undone = "and a later phase undoes it"
    if _is_of_scratch(evidence, first):
        undone = (
            "and nothing that is made of it does: each step assigns it anew before it "
            "uses it"
        )
    return f"note: {first.phase} of '{first.variable}'{more} deviates{ratio}, {undone}"


def note_undecided(evidence: Evidence, chain: Chain) -> str:
    """Names the first deviation of which that cannot be told; there has to be one."""
    first = chain.undecided[0].comparison
    ratio = "" if first.ratio is None else f" (ratio {first.ratio:.6g})"
    where = f"{first.phase} of '{first.variable}'"
    infos = evidence.observed.by_path
    if _is_of_scratch(evidence, first):
        decided_by = infos[first.variable].decided_by
        return (
            f"{where} is another one than on one device{ratio}; what a step makes of "
            f"it is right here, but {decided_by} may treat other numbers in another "
            "way, and nothing in this run shows whether it reckons there with what "
            "replicas hold; let it hold what one device has, as a sum in place of a "
            "mean"
        )
    return (
        f"{where} is not the {first.against}{ratio}, and in a free run the noise hides "
        "whether a later phase undoes it; use the bounded tier or a wider dtype"
    )


def _is_of_scratch(evidence: Evidence, one: Comparison) -> bool:
    return one.phase in UPDATED and one.variable in list_scratch(evidence)
