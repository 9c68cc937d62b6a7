"""State that keeps gradients which, as is told, are handed on late: it follows."""

from __future__ import annotations

from collections.abc import Sequence

from distbench.compare.comparison import Judged
from distbench.diagnose.clues.keepers import find_keepers
from distbench.evidence import Evidence
from distbench.trace import SUMMED, UPDATED
from distbench.verdict import Finding


def leave_out_keepers(
    evidence: Evidence, findings: Sequence[Finding], links: Sequence[Judged]
) -> list[Judged]:
    """Without state that keeps gradients which, as is told, are handed on late."""
    is_state = any(link.comparison.phase in UPDATED for link in links)
    paths = list_keepers(evidence, findings) if is_state else set()
    return [link for link in links if link.comparison.variable not in paths]


def list_keepers(evidence: Evidence, findings: Sequence[Finding]) -> set[str]:
    """Paths of the keepers of gradients that findings say to be handed on late."""
    late = {
        variable
        for finding in findings
        if finding.code == "stale-gradient" and finding.phase in SUMMED
        for variable in finding.variables
    }
    keepers = find_keepers(evidence) if late else {}
    return {info.path for variable, info in keepers.items() if variable in late}
