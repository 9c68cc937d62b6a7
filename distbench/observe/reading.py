"""Evidence, put together from the traces that the tasks of a run wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from distbench.evidence import Evidence, Inside, Measure, Tier, Traits
from distbench.examples import Counted, Counterpart, Examples, are_filled_by_zeros
from distbench.fed import Fed
from distbench.observe.errand import Errand
from distbench.observe.saved import SAVED
from distbench.scenario.choices import PIPELINE
from distbench.trace import Trace, merge_traces
from distbench.trace.archive import read_arrays
from distbench.trace.files import list_files, read_trace
from distbench.trace.idle import find_idle
from distbench.trace.packed import PACKED, find_packed, shape_gradients
from distbench.trace.reshaped import RESHAPED, find_reshaped, leave_out_variables


def read_evidence(
    errand: Errand,
    tier: Tier,
    answer: Mapping[str, Any],
    replies: Mapping[str, Any],
    *,
    uncut: Trace | None = None,
) -> Evidence:
    """What a tier of a run showed.

    Args:
        errand: What was run.
        tier: Which one.
        answer: What the jobs `reference` and `probe` returned.
        replies: What the job `replay` returned.
        uncut: The single-device run with no variable in shards, where there is one.
    """
    scenario, folder, reference = errand.scenario, errand.folder, errand.reference
    tasks = tuple(map(str, errand.trainers))
    examples = None
    if scenario.workload == PIPELINE:
        apart = scenario.spec.traits.scheduled
        examples = replace(
            _read_examples(folder, tasks, apart=apart),
            own_left_out=answer["leaves_out_own_data"],
        )
    parts = [read_trace(folder, f"observed-{tier}-{task}") for task in tasks]
    replied = replies["tiers"][tier]

    def read_all(name: str) -> tuple[Trace, ...]:
        numbers = range(replied[name])
        return tuple(read_trace(folder, f"{name}-{tier}-{n}") for n in numbers)

    observed = merge_traces(scenario.cluster, parts)
    evidence = Evidence(
        tier=tier,
        observed=observed,
        reference=read_trace(reference, f"reference-{tier}"),
        twins=tuple(
            read_trace(reference, f"twin-{tier}-{number}")
            for number in range(answer["twins"][tier])
        ),
        reruns=read_all("reruns"),
        moved=read_all("moved"),
        earlier=read_all("earlier"),
        terms=read_all("terms"),
        penalty=read_trace(reference, "penalty") if answer["penalty"] else None,
        probes={
            **{n: read_trace(reference, f"probe-{n}") for n in answer["probes"]},
            **({} if uncut is None else {"uncut": uncut}),
        },
        fed=Fed.gather(
            {
                phase: read_trace(folder, f"replay-{tier}-{phase}")
                for phase in replied["replays"]
            },
            read_all,
        ),
        measure=Measure(shards_known=answer["shards_known"]),
        subject=Traits(
            loss_reduction=answer["loss_reduction"],
            differentiated=answer["differentiated"],
            averages=answer["averages"],
            kept=tuple(replied["kept"]),
            steered=tuple(replied["steered"]),
            drawn_anew=tuple(replies["drawn_anew"]),
            undetermined=tuple(replied["undetermined"]),
            restored=bool(scenario.restore_from),
            scheduled=scenario.spec.traits.scheduled,
            compiled=answer["compiled"],
            limits=answer["limits"],
            unlimited=answer["unlimited"],
            sums_means=answer["sums_means"],
            guards=answer["guards"],
            reduces_at=answer["reduces_at"],
            other_kernels=scenario.spec.variable_device == "gpu",
            other_start=scenario.spec.computes_elsewhere,
        ),
        examples=examples,
        counted=_read_counted(answer["counted"], observed),
        inside_own=_read_own(reference) if answer["inside"] else None,
    )
    idle = find_idle(evidence.observed) & find_idle(evidence.reference)
    evidence = evidence.change_traces(lambda trace: leave_out_variables(trace, idle))
    evidence = _shape_gradients(evidence)
    reshaped = find_reshaped(evidence.observed, evidence.reference)
    if not reshaped:
        return evidence
    evidence = evidence.change_traces(lambda t: leave_out_variables(t, reshaped))
    notes = {**evidence.observed.notes, RESHAPED: reshaped}
    return replace(evidence, observed=replace(evidence.observed, notes=notes))


def _read_own(folder: Path) -> Inside:
    """One device's look inside, with what it has of a shard in the replicas' place."""
    found = read_trace(folder, "inside")
    return Inside(reference=found, observed=found)


def _read_counted(answer: Mapping[str, Any] | None, observed: Trace) -> Counted | None:
    # Features of all replicas leave no measure but the global batch anyway.
    is_of_data = observed.notes.get("exchange") == "data"
    if answer is None or (answer["given"] and not is_of_data):
        return None
    return Counted(
        step=answer["step"],
        whole=tuple(answer["whole"]),
        shards=tuple(map(tuple, answer["shards"])),
        by_place=answer["by_place"],
        given=answer["given"],
        variable=answer["variable"],
    )


def _shape_gradients(evidence: Evidence) -> Evidence:
    """With gradients alone where gradients are, in the shapes of their variables."""
    packed = find_packed((evidence.observed, evidence.reference))
    shaped = evidence.change_traces(lambda trace: shape_gradients(trace, packed))
    probes = {n: shape_gradients(p, packed) for n, p in evidence.probes.items()}
    notes = {**shaped.observed.notes, **({PACKED: list(packed)} if packed else {})}
    observed = replace(shaped.observed, notes=notes)
    return replace(shaped, observed=observed, probes=probes)


def list_reads(errand: Errand, tiers: Iterable[str]) -> list[str]:
    """What a task that trains reads of a run: of many traces the reference's."""
    folder, reference = errand.folder, errand.reference
    files = [f for tier in tiers for f in list_files(reference, f"reference-{tier}")]
    # What the replicas got, and what another cluster saved, if there is such.
    files += [*folder.glob("batches-*"), *(folder / SAVED).glob("*")]
    return list(map(str, files))


def _read_examples(folder: Path, tasks: Sequence[str], *, apart: bool) -> Examples:
    """What was read of an epoch, on one device and by the tasks of a cluster.

    Args:
        folder: Where the tasks left it.
        tasks: Those that read, in their order.
        apart: See `Examples`.
    """
    one, *parts = (
        json.loads((folder / f"examples-{name}.json").read_text("utf-8"))
        for name in ("one", *tasks)
    )
    return Examples(
        expected=tuple(tuple(step) for replica in one["seen"] for step in replica),
        seen=tuple(
            tuple(tuple(step) for step in replica)
            for part in parts
            for replica in part["seen"]
        ),
        is_whole=all(part["is_whole"] for part in (one, *parts)),
        is_sure=are_filled_by_zeros([part["lengths"] for part in (one, *parts)]),
        apart=apart,
        counterparts=_read_counterparts(folder / "counterparts.npz"),
    )


def _read_counterparts(path: Path) -> tuple[tuple[Counterpart, ...], ...]:
    """What one device wrote of examples that it does not have as they are, if any."""
    if not path.exists():
        return ()
    found: dict[str, list[Counterpart]] = {}
    arrays = read_arrays(path)
    paths = [name.decode() for name in arrays["names"]]
    names = [f"batch/{name}" if name else "batch" for name in paths]
    for key, numbers in arrays.items():
        place, _, kind = key.rpartition(".")
        if kind != "batches":
            continue
        way, reader = place.split(".")
        both = {
            side: {
                name: arrays[f"{place}.{leaf}.{side}"]
                for leaf, name in enumerate(names)
            }
            for side in ("seen", "due")
        }
        counterpart = Counterpart(
            reader=int(reader),
            batches=len({*numbers.tolist()}),
            asked=int(arrays[f"{place}.asked"]),
            **both,
        )
        found.setdefault(way, []).append(counterpart)
    return tuple(map(tuple, found.values()))
