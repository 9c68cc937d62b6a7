"""What a soak keeps of its runs, and the figures that it makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psutil
from measured import describe_place
from soak_draws import Draw, is_deviating
from tally import Tally, limit_rate

from distbench.cluster import ClusterSpec
from distbench.compare.comparison import compare_evidence
from distbench.compare.state.measured_noise import measure_noise
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.readings.reading import list_readings
from distbench.evidence import Evidence
from distbench.scenario.choices import DTYPES
from distbench.trace import INITIAL
from distbench.verdict import Status

_LISTED = 50
"""Alarms and other outcomes that are kept word for word."""
Row = dict[str, Any]


@dataclass(slots=True)
class Counts:
    """Everything that is kept of the runs.

    Attributes:
        drawn: Number of scenarios.
        unrun: Scenarios without a run, by the reason.
        statuses: Runs by their status: one for each tier of a scenario.
        groups: The same by dtype, cluster, ...
        relations: Comparisons by tier and relation.
        dtypes: Comparisons against a bound, by dtype.
        total: All comparisons, but for those that deviate on purpose.
        deviating: How many do: programs that scale up and average, for example.
        exceeded: Comparisons outside of their bound that do not.
        alarms: Runs that failed.
        unclear: Runs that neither failed nor passed, and passes with a warning.
        memory: Size of this process in MiB after the first scenario and the last, and
            the largest.
    """

    drawn: int = 0
    unrun: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    groups: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    relations: dict[tuple[str, str, str], Tally] = field(default_factory=dict)
    dtypes: dict[str, Tally] = field(default_factory=dict)
    total: Tally = field(default_factory=Tally)
    deviating: int = 0
    exceeded: list[Row] = field(default_factory=list)
    alarms: list[Row] = field(default_factory=list)
    unclear: list[Row] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)

    def add_status(self, draw: Draw, tier: str, status: str) -> None:
        """Count a run."""
        self.statuses[status] += 1
        kind = ClusterSpec.parse(draw.cluster)
        for by, name in (
            ("dtype", draw.dtype),
            ("tier", tier),
            ("workload", draw.workload or "program"),
            ("cluster", kind.kind),
            ("replicas", str(kind.replicas)),
            ("path", draw.path),
            ("subject", _name_kind(draw.target)),
        ):
            self.groups.setdefault((by, name), Counter())[status] += 1

    def add_comparisons(
        self, draw: Draw, evidence: Evidence, judgement: Judgement
    ) -> None:
        """Count the comparisons of a run."""
        deviates = is_deviating(draw)
        for c in list_comparisons(evidence, judgement):
            if c.wrong and deviates:
                self.deviating += 1
                continue
            if c.wrong:
                words = f"{c.error_over_bound:.3g} of the bound, {c.key}, {c.against}"
                keep_outcome(self.exceeded, draw, evidence.tier, "exceeded", words)
            against = "another replica" if c.relation == "replicas" else c.against
            if c.step == INITIAL:
                against = "one device, before the first step"
            place = (evidence.tier, c.phase, against)
            tallies = [self.total, self.relations.setdefault(place, Tally())]
            if evidence.tier != "exact" and c.bound > 0:
                tallies.append(self.dtypes.setdefault(draw.dtype, Tally()))
            for tally in tallies:
                tally.add(c)

    def note_memory(self) -> None:
        """Look how large this process is."""
        now = psutil.Process().memory_info().rss >> 20
        self.memory = {
            "first": self.memory.get("first", now),
            "last": now,
            "largest": max(now, self.memory.get("largest", now)),
        }


def _name_kind(target: str) -> str:
    if target.startswith("tf_keras"):
        return "Keras' optimizers"
    if target.startswith("scenarios"):
        return "scenarios/optimizers"
    return "unusual programs"


def list_comparisons(evidence: Evidence, judgement: Judgement) -> Iterator[Any]:
    """The comparisons on which a judgement rests."""
    with np.errstate(all="ignore"):
        noise = measure_noise(evidence)
        # What one device makes of the global batch counts, unless the judgement says
        # that it is no measure.
        named = (
            reading.evidence
            for reading in list_readings(evidence, noise)
            if reading.note in judgement.message
        )
        for judged in compare_evidence(next(named, evidence), noise):
            yield judged.comparison


def keep_outcome(
    rows: list[Row], draw: Draw, tier: str, status: str, text: str
) -> None:
    """Keep an outcome word for word, unless there are many."""
    if len(rows) < _LISTED:
        rows.append(
            {
                "number": draw.number,
                "tier": tier,
                "status": status,
                "command": draw.command,
                "text": text[:300],
            }
        )


def make_document(counts: Counts, seed: int, seconds: float) -> Row:
    """All figures."""
    runs = counts.statuses.total()
    alarms = counts.statuses[str(Status.FAIL)]
    total = counts.total
    return {
        "schema": "distbench/soak/1",
        "place": describe_place(),
        "seed": seed,
        "seconds": round(seconds),
        "scenarios": counts.drawn,
        "unrun": dict(counts.unrun),
        "runs": runs,
        "statuses": dict(counts.statuses),
        "false_alarms": alarms,
        "run_rate_limit": limit_rate(alarms, runs) if runs else 1.0,
        "comparison_rate_limit": (
            limit_rate(total.wrong, total.compared) if total.compared else 1.0
        ),
        "comparisons": total.to_json(),
        "deviating": counts.deviating,
        "memory_mib": counts.memory,
        "groups": [
            {"by": by, "name": name, **statuses}
            for (by, name), statuses in sorted(counts.groups.items())
        ],
        "relations": [
            {"tier": tier, "phase": phase, "against": against, **tally.to_json()}
            for (tier, phase, against), tally in sorted(counts.relations.items())
        ],
        "dtypes": [
            {"dtype": dtype, **counts.dtypes[dtype].to_json()}
            for dtype in DTYPES
            if dtype in counts.dtypes
        ],
        "exceeded": counts.exceeded,
        "alarms": counts.alarms,
        "unclear": counts.unclear,
    }
