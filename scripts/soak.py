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
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from measured import FOLDER, ROOT, write_figures
from soak_counts import Counts, keep_outcome, make_document
from soak_draws import TIMEOUT_S, Draw, draw_run

from distbench.checking.check import check_target
from distbench.cluster import ClusterSpec
from distbench.diagnose.judge import judge
from distbench.diagnose.judgement import Judgement
from distbench.errors import BadInputError, ClusterError
from distbench.launch.rundir import RunDirectory
from distbench.observe import Launch, observe
from distbench.options import CheckOptions
from distbench.scenario.choices import PROGRAM, TIERS
from distbench.target import parse_target
from distbench.verdict import Status, describe_verdict

_SAVE_EVERY = 25


def run_draw(draw: Draw, counts: Counts) -> str:
    """Run a scenario, judge it in all of its tiers; returns what came out, in words."""
    counts.drawn += 1
    spec = ClusterSpec.parse(draw.cluster).resolve(gpus=0, cpus=1)
    target = parse_target(draw.target, ROOT)
    try:
        with RunDirectory() as directory:
            launch = Launch(directory=directory)
            seen = observe(target, draw.scenario, spec, TIERS, launch)
        if seen.failure is not None:
            return _judge_failure(draw, counts)
    except BadInputError as error:
        return _note_unrun(draw, counts, "one device does not take it", error)
    except ClusterError as error:
        return _note_unrun(draw, counts, "the cluster broke", error)
    words = []
    for tier, evidence in seen.evidence.items():
        judgement = judge(evidence)
        words.append(f"{tier} {_note_run(draw, counts, tier, judgement)}")
        counts.add_comparisons(draw, evidence, judgement)
    return ", ".join(words)


def _note_unrun(draw: Draw, counts: Counts, why: str, error: Exception) -> str:
    counts.unrun[why] += 1
    keep_outcome(counts.unclear, draw, "", why, str(error))
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
        keep_outcome(counts.alarms, draw, tier, status, text)
    elif judgement.status is not Status.PASS or warned:
        keep_outcome(counts.unclear, draw, tier, status, text)
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
        timeout_s=TIMEOUT_S,
    )
    verdict = check_target(parse_target(draw.target, ROOT), options)
    status = verdict.runs[0].status
    if status is Status.REFUSED:
        counts.unrun["TensorFlow refuses it on the cluster"] += 1
    else:
        counts.add_status(draw, "bounded", str(status))
        rows = counts.alarms if status is Status.FAIL else counts.unclear
        keep_outcome(rows, draw, "bounded", str(status), describe_verdict(verdict))
    return str(status)


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
    finally:
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
