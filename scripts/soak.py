"""Run correct programs on real clusters for as long as wanted, and count alarms.

Each run is drawn from a seed and its number: an optimizer (Keras' own, those of
scenarios/optimizers, the unusual ones) under a workload, or an unusual program; a
cluster, an aggregation path, a dtype, data. It is judged in every tier that it can
have. An alarm is a run that fails; it is printed with the command that shows it again.
Beside that, every comparison is counted with its error ÷ bound.

    scripts/soak --minutes 30                 # docs/measured/soak.json
    scripts/soak --seed 1 --only 17           # the 17th run of that seed once more
"""

from __future__ import annotations

import argparse
import random
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from measured import FOLDER, ROOT, describe_place, write_figures
from tally import Tally, limit_rate

from distbench.checking.checker import check_target
from distbench.cluster import ClusterSpec
from distbench.compare.comparison import compare_evidence
from distbench.compare.noise import measure_noise
from distbench.diagnose.judge import judge
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.readings import list_readings
from distbench.errors import BadInputError, ClusterError
from distbench.evidence import Evidence
from distbench.launch.rundir import RunDirectory
from distbench.observe import Launch, observe
from distbench.options import CheckOptions
from distbench.scenario import DTYPES, PATHS, PROGRAM, TIERS, WORKLOADS, Scenario
from distbench.target import parse_target
from distbench.trace import INITIAL
from distbench.unusual import UNUSUAL, Unusual
from distbench.verdict import Status, describe_verdict

KERAS = ("Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "RMSprop", "SGD")
OWN = {
    "adam": "make_adam",
    "adamw": "make_adamw",
    "averaged_sgd": "make_averaged_sgd",
    "lazy_adam": "make_lazy_adam",
    "momentum": "make_momentum",
    "sgd": "make_sgd",
}
REPLICAS = {2: 6, 3: 4, 4: 4, 5: 2, 6: 2, 7: 2, 8: 3, 16: 1}
"""Sizes of clusters with their weights: large ones take long and compare much."""
KINDS = {"mirrored": 4, "mwms": 4, "central": 2}
_DTYPE_WEIGHTS = {"float32": 3, "float64": 1, "float16": 1, "bfloat16": 1}
_STEPS = (1, 2, 3, 3, 3, 5)
_TIMEOUT_S = 300.0
_SAVE_EVERY = 25
_LISTED = 50
"""Alarms and other outcomes that are kept word for word."""

Row = dict[str, Any]


_MIRROR = ("mirrored", "mwms")
MIRRORING = tuple(
    sample
    for sample in UNUSUAL
    if any(ClusterSpec.parse(spec).kind in _MIRROR for spec in sample.clusters)
)
"""The unusual programs that are written for strategies that mirror."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What one run is made of."""

    number: int
    target: str
    workload: str
    cluster: str
    path: str
    dtype: str
    seed: int
    steps: int

    @property
    def command(self) -> str:
        """What shows it again."""
        words = ["distbench", "check", self.target, "-c", self.cluster]
        if self.workload != PROGRAM:
            words += ["--workload", self.workload, "--path", self.path]
            words += ["--dtype", self.dtype]
        words += ["--seed", str(self.seed), "--steps", str(self.steps)]
        return shlex.join([*words, *(w for tier in TIERS for w in ("--tier", tier))])

    @property
    def scenario(self) -> Scenario:
        """The same for the bench."""
        return Scenario(
            target=self.target,
            workload=self.workload,
            cluster=self.cluster,
            path=self.path,
            dtype=self.dtype,
            seed=self.seed,
            steps=self.steps,
            timeout_s=_TIMEOUT_S,
        )


def draw_run(seed: int, number: int) -> Draw:
    """The run with a number; the same whatever was run before it."""
    rng = random.Random(f"{seed}/{number}")
    replicas = _choose(rng, REPLICAS)
    kind = _choose(rng, KINDS)
    settings = {
        "number": number,
        "seed": rng.randrange(1 << 31),
        "steps": rng.choice(_STEPS),
    }
    group = _choose(rng, {"keras": 9, "own": 7, "unusual": 4})
    if group == "unusual":
        return _draw_unusual(rng, rng.choice(MIRRORING), kind, replicas, settings)
    if group == "keras":
        target = f"tf_keras.optimizers.legacy:{rng.choice(KERAS)}"
    else:
        name = rng.choice(list(OWN))
        target = f"scenarios/optimizers/{name}.py:{OWN[name]}"
    paths = [path for path in PATHS if path not in ("default", "none")]
    return Draw(
        target=target,
        workload=rng.choice(list(WORKLOADS)),
        cluster=f"{kind}:{replicas}",
        path="default" if rng.random() < 0.5 else rng.choice(paths),
        dtype=_choose(rng, _DTYPE_WEIGHTS),
        **settings,
    )


def _draw_unusual(
    rng: random.Random,
    sample: Unusual,
    kind: str,
    replicas: int,
    settings: Mapping[str, int],
) -> Draw:
    # Each brings its workload or data. What is correct where one process makes all
    # replicas need not be so where each worker makes its own.
    own = {ClusterSpec.parse(spec).kind for spec in sample.clusters}
    kinds = {name: KINDS[name] for name in _MIRROR if name in own}
    return Draw(
        target=sample.target,
        workload=sample.workload or PROGRAM,
        cluster=f"{kind if kind in kinds else _choose(rng, kinds)}:{replicas}",
        path="default",
        dtype="float32",
        **settings,
    )


def _choose(rng: random.Random, weights: Mapping[Any, int]) -> Any:
    return rng.choices(list(weights), list(weights.values()))[0]


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
                _keep(self.exceeded, draw, evidence.tier, "exceeded", words)
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


def is_deviating(draw: Draw) -> bool:
    """Whether a right program has values that are not what one device has.

    The outcome is what counts there, and a run that passes says nothing of the bounds
    of values that are scaled up before they are averaged.
    """
    return draw.path == "aggregator-mean" or draw.target.startswith("distbench.unusual")


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


def run_draw(draw: Draw, counts: Counts) -> str:
    """Run a scenario, judge it in all of its tiers; returns what came out, in words."""
    counts.drawn += 1
    spec = ClusterSpec.parse(draw.cluster).resolve(gpus=0, cpus=1)
    with RunDirectory() as directory:
        launch = Launch(directory=directory)
        target = parse_target(draw.target, ROOT)
        try:
            seen = observe(target, draw.scenario, spec, TIERS, launch)
        except BadInputError as error:
            return _note_unrun(draw, counts, "one device does not take it", error)
        except ClusterError as error:
            return _note_unrun(draw, counts, "the cluster broke", error)
    if seen.failure is not None:
        return _judge_failure(draw, counts)
    words = []
    for tier, evidence in seen.evidence.items():
        judgement = judge(evidence)
        words.append(f"{tier} {_note_run(draw, counts, tier, judgement)}")
        counts.add_comparisons(draw, evidence, judgement)
    return ", ".join(words)


def _note_unrun(draw: Draw, counts: Counts, why: str, error: Exception) -> str:
    counts.unrun[why] += 1
    _keep(counts.unclear, draw, "", why, str(error))
    return why


def _note_run(draw: Draw, counts: Counts, tier: str, judgement: Judgement) -> str:
    status = str(judgement.status)
    warned = judgement.status is Status.PASS and bool(judgement.findings)
    if warned:
        status = "warning"
    counts.add_status(draw, tier, status)
    text = judgement.message
    if judgement.findings:
        text = judgement.findings[0].explanation
    if judgement.status is Status.FAIL:
        _keep(counts.alarms, draw, tier, status, text)
    elif judgement.status is not Status.PASS or warned:
        _keep(counts.unclear, draw, tier, status, text)
    return status


def _judge_failure(draw: Draw, counts: Counts) -> str:
    """A step that raises on the cluster alone: refused by TensorFlow, or an alarm."""
    options = CheckOptions(
        clusters=(draw.cluster,),
        paths=(draw.path,),
        tiers=("bounded",),
        workloads=() if draw.workload == PROGRAM else (draw.workload,),
        dtype=draw.dtype,
        seed=draw.seed,
        steps=draw.steps,
        timeout_s=_TIMEOUT_S,
    )
    verdict = check_target(parse_target(draw.target, ROOT), options)
    status = verdict.runs[0].status
    if status is Status.REFUSED:
        counts.unrun["TensorFlow refuses it on the cluster"] += 1
    else:
        counts.add_status(draw, "bounded", str(status))
        rows = counts.alarms if status is Status.FAIL else counts.unclear
        _keep(rows, draw, "bounded", str(status), describe_verdict(verdict))
    return str(status)


def _keep(rows: list[Row], draw: Draw, tier: str, status: str, text: str) -> None:
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


def soak(
    seed: int, *, runs: int | None, minutes: float, file: Path, counts: Counts
) -> None:
    """Run until the time or the number of scenarios is up."""
    begin_s = time.monotonic()
    number = 0
    try:
        while runs is None or number < runs:
            if runs is None and time.monotonic() - begin_s > 60 * minutes:
                break
            number += 1
            tell_run(draw_run(seed, number), counts)
            if number % _SAVE_EVERY == 0:
                write_figures(
                    file, make_document(counts, seed, time.monotonic() - begin_s)
                )
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    write_figures(file, make_document(counts, seed, time.monotonic() - begin_s))


def tell_run(draw: Draw, counts: Counts) -> None:
    """Run a scenario and print a line about it, and more where it is an alarm."""
    begin_s = time.monotonic()
    alarms = len(counts.alarms)
    words = run_draw(draw, counts)
    counts.note_memory()
    name = draw.target.rpartition(":")[2]
    print(
        f"[{draw.number}] {name} {draw.workload or 'program'} {draw.cluster} "
        f"{draw.path} {draw.dtype}: {words} "
        f"({time.monotonic() - begin_s:.1f} s, {counts.memory['last']} MiB)",
        flush=True,
    )
    for alarm in counts.alarms[alarms:]:
        print(f"ALARM {alarm['tier']}: {alarm['text']}\n  {alarm['command']}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and write the figures; returns 1 if there was an alarm."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--runs", type=int, metavar="K", help="instead of a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this run alone")
    parser.add_argument(
        "--json", type=Path, default=FOLDER / "soak.json", metavar="FILE"
    )
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}")
    counts = Counts()
    if options.only is not None:
        draw = draw_run(options.seed, options.only)
        print(draw.command)
        tell_run(draw, counts)
    else:
        soak(
            options.seed,
            runs=options.runs,
            minutes=options.minutes,
            file=options.json,
            counts=counts,
        )
        print(
            f"{len(counts.alarms)} alarms, {counts.statuses.total()} runs, "
            f"{counts.total.compared} comparisons"
        )
    return 1 if counts.alarms else 0


if __name__ == "__main__":
    sys.exit(main())
