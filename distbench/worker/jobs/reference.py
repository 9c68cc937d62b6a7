"""The single-device run of a scenario, and what follows there from the cluster's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from distbench.cluster import ClusterSpec
from distbench.evidence import Tier
from distbench.fed import Fed
from distbench.late import Late
from distbench.scenario import scenario_from_json
from distbench.trace import Phase, Trace
from distbench.trace.files import read_trace, write_trace
from distbench.trace.shelf import Shelf
from distbench.worker.jobs.control import write_control
from distbench.worker.jobs.folder import read_both, read_reference
from distbench.worker.jobs.task import Task
from distbench.worker.one_device.anew import find_drawn_anew
from distbench.worker.one_device.by_hand import Summed, find_unsummed, try_sums
from distbench.worker.one_device.configured import configure_alike
from distbench.worker.one_device.counted import find_counted
from distbench.worker.one_device.earlier import rerun_earlier
from distbench.worker.one_device.exact_sums import sums_exactly
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.one_device.formed import feed_formed
from distbench.worker.one_device.guards import leaves_out_overflow
from distbench.worker.one_device.held_scratch import hold_scratch
from distbench.worker.one_device.held_state import hold_state
from distbench.worker.one_device.larger import limits_larger
from distbench.worker.one_device.late import find_late
from distbench.worker.one_device.looked_into import look_inside
from distbench.worker.one_device.odd_terms import split_odd
from distbench.worker.one_device.other_units import try_units
from distbench.worker.one_device.own_data import leaves_out_own_data
from distbench.worker.one_device.penalty import record_penalty
from distbench.worker.one_device.placed import find_placed
from distbench.worker.one_device.probes import Probes
from distbench.worker.one_device.recounted import count_replicas_again
from distbench.worker.one_device.reduced_twice import sums_means
from distbench.worker.one_device.reference import Reference
from distbench.worker.one_device.replay import (
    Followed,
    add_repeated_rows,
    change_apart,
    follow,
    trace_ahead,
)
from distbench.worker.one_device.reruns import has_near, rerun_shards
from distbench.worker.one_device.smaller import find_unlimited
from distbench.worker.one_device.terms import split_loss
from distbench.worker.one_device.traced_apart import trace_for_each
from distbench.worker.one_device.twins import Twins
from distbench.worker.one_device.uncut import run_uncut
from distbench.worker.one_device.undetermined import find_undetermined
from distbench.worker.stepping.session import Session


class ReferenceJobs:
    """Jobs of the task with one device."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._feeder: Feeder | None = None

    @property
    def _known_feeder(self) -> Feeder:
        if self._feeder is None:
            raise RuntimeError("a job came before that of the reference")
        return self._feeder

    def make_reference(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the scenario on one device; writes a trace for each tier."""
        scenario = scenario_from_json(payload["scenario"])
        folder = Path(payload["reference"])
        session = self._task.make_session(payload, scenario)
        session.shelf = Shelf(folder)
        self._task.read_data(session, payload, scenario, "one", payload["tasks"])
        self._task.take_data(session, payload, scenario)
        self._task.report_progress(phase="first step")
        reference = Reference(session, scenario, payload["replicas"])
        if restored := payload.get("restored"):
            saved = f"saved-{payload['saved_by']}"
            reference.start_from(read_trace(Path(restored), saved))
        self._feeder = Feeder(reference)
        program = session.program
        tiers: list[Tier] = []
        proved = program.prove_exact(scenario.steps, reference.shards)
        for tier in payload["tiers"]:
            if tier == "exact" and not proved:
                continue
            self._task.report_progress(phase=tier)
            trace = reference.record(tier)
            if tier == "exact" and not sums_exactly(trace):
                continue
            write_trace(trace, folder, f"reference-{tier}")
            tiers.append(tier)
        return {
            "shards_known": program.shards_known,
            "loss_reduction": program.loss_reduction,
            "differentiated": program.differentiated,
            "averages": program.averages,
            "compiled": program.is_compiled,
            "shards": list(reference.shards),
            "tiers": tiers,
            "control": write_control(session, folder),
        }

    def run_uncut(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take the steps of a scenario in shards with whole variables; writes a trace.

        Args:
            payload: That of the reference, with one of the tiers that it ran.
        """
        scenario = replace(scenario_from_json(payload["scenario"]), partitioner="")
        session = self._task.make_session(payload, scenario)
        self._task.take_data(session, payload, scenario)
        reference = Reference(session, scenario, payload["replicas"])
        (tier,) = payload["tiers"]
        uncut = run_uncut(reference, read_reference(payload, tier))
        write_trace(uncut, Path(payload["folder"]), f"uncut-{tier}")
        return {}

    def probe(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask one device what the judge has to know besides; needs no cluster's start.

        Args:
            payload: That of the reference, with the tiers that it ran.

        Returns:
            Of a run that ends for what is late, nothing else.
        """
        feeder = self._known_feeder
        reference = feeder.reference
        goes_on = reference.scenario.may_go_on
        looks = payload["looks"] if goes_on else ""
        late = find_late(reference) if looks else Late()
        if late.steps and looks == "heeded":
            return {"late": asdict(late)}
        folder = Path(payload["reference"])
        twins: dict[Tier, int] = {}
        copying = Twins(reference)
        for tier in payload["tiers"]:
            copies = copying.record(tier)
            for number, twin in enumerate(copies):
                write_trace(twin, folder, f"twin-{tier}-{number}")
            twins[tier] = len(copies)
        tier = payload["tiers"][0]
        recorded = read_reference(payload, tier)
        limits = goes_on and limits_larger(feeder, recorded)
        guards = goes_on and leaves_out_overflow(reference, recorded, tier)
        own_left_out = leaves_out_own_data(reference, tier)
        probes = dict(Probes(reference, recorded, copying).record(tier))
        probes.update(split_odd(reference, tier, recorded, probes))
        counted = find_counted(reference, tier, recorded, copying) or find_placed(
            reference, tier, recorded, probes, copying
        )
        inside = look_inside(reference, tier, recorded, probes, copying)
        if inside is not None:
            write_trace(inside, folder, "inside")
        for number, moved in enumerate(copying.record_rounded(tier)):
            probes[f"rounded-{number}"] = moved
        unlimited = find_unlimited(feeder, tier, recorded) if goes_on else 0.0
        distinct = add_repeated_rows(feeder, tier, recorded)
        if distinct is None:
            trace_ahead(feeder, tier, recorded)
        else:
            probes["distinct"] = distinct
        for name, probe in probes.items():
            write_trace(probe, folder, f"probe-{name}")
        penalty = record_penalty(reference)
        if penalty is not None:
            write_trace(penalty, folder, "penalty")
        return {
            "twins": twins,
            "probes": list(probes),
            "penalty": penalty is not None,
            "inside": inside is not None,
            "limits": limits,
            "unlimited": unlimited,
            "sums_means": sums_means(feeder, tier, recorded),
            "guards": guards,
            "reduces_at": reference.exchanged.reduces_at,
            "leaves_out_own_data": own_left_out,
            "counted": None if counted is None else asdict(counted),
            "late": asdict(late),
        }

    def replay(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Feed what the cluster observed into the single-device update.

        May be asked for once for each cluster that has this reference, until it says
        that it is `spent`: a second build of the subject comes in the first one's way.
        """
        reference = self._known_feeder.reference
        reference.session.shelf = Shelf(Path(payload["folder"]))
        built: list[Session] = []

        def build() -> Session:
            built.append(self._task.make_session(payload, reference.scenario))
            return built[-1]

        followed = {tier: self._follow(payload, tier) for tier in payload["tiers"]}
        observed, _ = read_both(payload, payload["tiers"][-1])
        return {
            "tiers": followed,
            "drawn_anew": find_drawn_anew(observed, reference, build),
            "spent": bool(built),
        }

    def _follow(self, payload: Mapping[str, Any], tier: Tier) -> Mapping[str, Any]:
        """What follows from what was observed in a tier; says which traces it wrote."""
        feeder = self._known_feeder
        reference = feeder.reference
        folder = Path(payload["folder"])
        observed, recorded = read_both(payload, tier)
        followed = follow(feeder, tier, observed)
        is_explained = followed.is_explained
        summed = try_sums(feeder, tier, recorded, observed, is_explained=is_explained)
        led, moved = _move_led(feeder, tier, recorded, observed, followed, summed)
        replays = followed.fed.replays
        traced: tuple[Trace, ...] = ()
        recounted: tuple[Trace, ...] = ()
        configured: Trace | None = None
        if not is_explained:
            traced = trace_for_each(feeder, tier, observed)
            once = replays["reduced_gradient"]
            configured = configure_alike(feeder, tier, recorded, observed, once)
            recounted = count_replicas_again(feeder, tier, observed, once)
        reruns: tuple[Trace, ...] = ()
        if _asks_for_reruns(reference, tier, payload) and (
            payload.get("rerun") or has_near(observed, recorded)
        ):
            reruns = rerun_shards(reference, tier)
        others = Fed(
            traced=traced,
            recounted=recounted,
            configured=configured,
            apart=change_apart(
                feeder, tier, recorded, observed, is_explained=is_explained
            ),
            resumed=feeder.resume_shards(tier, observed),
            formed=feed_formed(feeder, tier, recorded, observed, replays),
            held=hold_state(reference, tier, observed, recorded),
            scratch=hold_scratch(reference, tier, observed, recorded),
            units=try_units(reference, tier, recorded, observed),
        )
        for phase, trace in replays.items():
            write_trace(trace, folder, f"replay-{tier}-{phase}")
        traces = {
            **followed.fed.join(summed.fed, others).traces,
            "moved": moved,
            "reruns": reruns,
            "earlier": rerun_earlier(reference, tier, observed, recorded),
            "terms": split_loss(feeder, tier, observed, recorded),
        }
        for name, found in traces.items():
            for number, trace in enumerate(found):
                write_trace(trace, folder, f"{name}-{tier}-{number}")
        return {
            "replays": list(replays),
            "undetermined": led,
            "kept": summed.by_hand.kept,
            "steered": summed.by_hand.steered,
            **{name: len(found) for name, found in traces.items()},
        }


def _move_led(
    feeder: Feeder,
    tier: Tier,
    recorded: Trace,
    observed: Trace,
    followed: Followed,
    summed: Summed,
) -> tuple[Sequence[str], Sequence[Trace]]:
    """What neither reduced gradients nor sums determine, and how far rounding moves it.

    Returns:
        Paths of that state, and the traces; none where all is determined.
    """
    undetermined: Sequence[str] = ()
    if not followed.is_explained:
        reduced = followed.fed.replays["reduced_gradient"]
        undetermined = find_undetermined(feeder, tier, recorded, observed, reduced)
    if summed.fed.due is not None:
        # Of what no optimizer was given, the sum by hand tells.
        unsummed = find_unsummed(recorded, observed)
        undetermined = [path for path in undetermined if path not in unsummed]
    led = (*undetermined, *summed.undetermined)
    if not led:
        return (), ()
    put_in: Phase = "reduced_gradient" if undetermined else "local_gradient"
    return led, Twins(feeder.reference).record_led(tier, feeder, recorded, put_in, led)


def _asks_for_reruns(
    reference: Reference, tier: Tier, payload: Mapping[str, Any]
) -> bool:
    """Whether a replica ought to repeat its shard, bit by bit or nearly so.

    It starts from the same state, and computes with the same kernels. A replica of a
    program of the user's is held against the whole batch or weighed shards.
    """
    spec = ClusterSpec.parse(payload["cluster"])
    same = tier == "bounded" and spec.device == "cpu"
    return same and reference.session.program.shards_known
