"""Which scenarios the options of a check mean, for a subject of a kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain

from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError
from distbench.fault import Fault
from distbench.machine import Machine
from distbench.options import CheckOptions
from distbench.scenario import Scenario
from distbench.scenario.choices import (
    EXACT_WORKLOADS,
    MODEL,
    PIPELINE,
    PROGRAM,
    WORKLOADS,
    Tier,
)
from distbench.spelling import spell, spell_given
from distbench.xla import find_jit

DEFAULT_WORKLOADS = ("linear", "embedding")
"""One where every sum is exact, and one with sparse gradients. Both need no extra."""

IN_FLIGHT_WORKLOADS = ("counting",)
"""What tells of each of many steps in flight how often it was applied."""

_OF_OPTIMIZERS = ("paths", "workloads", "dtype")
"""Options that say what is done with an optimizer."""
_BROUGHT = {"model": MODEL, "pipeline": PIPELINE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A scenario that is to be run.

    Attributes:
        scenario: What to run.
        spec: Its cluster, as this machine can have it.
        optional: Whether nobody asked for it: a subject that cannot take part in it is
            left out, and not refused.
        number: Its place in the plan.
    """

    scenario: Scenario
    spec: ClusterSpec
    optional: bool
    number: int = 0

    @property
    def specs(self) -> tuple[ClusterSpec, ...]:
        """Its clusters, of which there is one at a time."""
        before = self.scenario.restore_from
        return (self.spec, *([ClusterSpec.parse(before)] if before else ()))

    @property
    def reference(self) -> object:
        """What decides its single-device run: equal where two scenarios share theirs.

        Nobody shares one that follows from what the cluster did: from what it read of
        an input pipeline, from what another one saved, or from when its steps ended.
        """
        scenario = self.scenario
        if (
            scenario.workload == PIPELINE
            or scenario.restore_from
            or scenario.in_flight > 1
        ):
            return self.number
        # A model of Keras that is to run on GPUs is compiled nowhere.
        seen = {"cluster": (self.spec.replicas, self.spec.device)}
        return {**asdict(scenario), **seen}


def list_possible(tiers: tuple[Tier, ...], scenario: Scenario) -> tuple[Tier, ...]:
    """Those tiers that a scenario may have, as far as it is known before it is run.

    One that can have none of them keeps them: it is skipped in words, or fails first.

    Args:
        tiers: Those of the check.
        scenario: What is to be run.
    """
    if scenario.workload in EXACT_WORKLOADS or scenario.in_flight > 1:
        return tiers
    return tuple(tier for tier in tiers if tier != "exact") or tiers


def leave_one_worker(item: Planned) -> Planned:
    """Plan the scenario for one worker, which takes its steps one after the other."""
    spec = replace(item.spec, workers=1)
    return replace(item, spec=spec, scenario=replace(item.scenario, cluster=str(spec)))


def _check_brought(target: str, kind: str, options: CheckOptions) -> None:
    """Refuse what a subject cannot have that brings a workload, or would not change."""
    fixed = ("examples", "loss_weight") if kind == "pipeline" else ("examples",)
    for field, given in _list_given(options, fixed):
        raise BadInputError(
            f"'{target}' brings its own data, so {spell(field)} would change nothing. "
            f"Leave it out. Received: {given}."
        )
    if kind == "pipeline" and options.split:
        raise BadInputError(
            f"The input pipeline of '{target}' decides what each replica gets. "
            f"Expected: no split. Received: {_join(options.split)}."
        )
    if kind in ("model", "pipeline") and options.in_flight > 1:
        raise BadInputError(
            f"Subject '{target}' has no steps in flight. Expected an optimizer, or a "
            "train program with data(step): `fit` waits for each of its steps, and a "
            "pipeline is read before any step is taken. "
            f"Received: {spell_given('in_flight', options.in_flight)}."
        )
    if kind == "model" and any(Fault.parse(f).kind == "drop" for f in options.faults):
        raise BadInputError(
            f"Keras hands '{target}' its batches itself, so none can be kept from a "
            "replica. Expected an optimizer or a train program with a drop fault."
        )


def tell_ignored(target: str, kind: str, options: CheckOptions) -> str:
    """Which options change nothing of a subject; empty if there are none.

    They are no bad usage: one command may be for subjects of several kinds.
    """
    if kind == "optimizer":
        return ""
    told = [given for _, given in _list_given(options, _OF_OPTIMIZERS)]
    if not told:
        return ""
    return (
        f"'{target}' brings its own data and loss: {', '.join(told)} "
        "would be for an optimizer and changes nothing."
    )


def _list_given(
    options: CheckOptions, names: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Those options that are not as usual, and each value as it was given."""
    usual = CheckOptions()
    for name in names:
        if (given := getattr(options, name)) != getattr(usual, name):
            for value in given if isinstance(given, tuple) else (given,):
                yield name, spell_given(name, value)


def plan_scenarios(
    target: str,
    kind: str,
    options: CheckOptions,
    machine: Machine,
    *,
    xla_flags: str = "",
) -> tuple[Planned, ...]:
    """Every workload on every cluster and path.

    Args:
        target: What the subject is called.
        kind: What it is: `optimizer`, `program`, `pipeline` or `model`. All but the
            first bring a workload, and sum their gradients, by themselves.
        options: Which scenarios to run.
        machine: Decides what an open cluster spec means, with the GPUs that are
            required: what lacks them then is no run on CPUs.
        xla_flags: What the environment has XLA do.

    Raises:
        BadInputError: A cluster spec cannot be, or no scenario has the wanted id.
    """
    if kind != "optimizer":
        _check_brought(target, kind, options)
    workloads, paths = _list_work(kind, options)
    faults = tuple(str(Fault.parse(text)) for text in options.faults)
    machine = expect_machine(options, machine)
    before = ""
    if options.restore_from is not None:
        before = str(_resolve(options.restore_from, machine))
    # An open spec and one with a device, or 'all' and a number, may mean the same.
    specs = dict.fromkeys(_resolve(cluster, machine) for cluster in options.clusters)
    found = tuple(
        Planned(
            scenario=Scenario(
                target=target,
                workload=workload,
                cluster=_name(spec),
                path=path,
                steps=options.count_steps(spec),
                dtype=options.dtype,
                seed=options.seed,
                split=options.split,
                keras=options.keras,
                jit=find_jit(options.jit, xla_flags, spec.device or "cpu"),
                timeout_s=options.deadline_s,
                restore_from=before,
                restore_after=options.restore_after,
                in_flight=options.in_flight,
                partitioner=options.partitioner or "",
                restore_partitioner=options.restore_partitioner or "",
                faults=faults,
                examples=options.examples if workload in WORKLOADS else 0,
                loss_weight=options.loss_weight,
            ),
            spec=spec,
            optional=not options.workloads and workload == "embedding",
        )
        for workload in workloads
        for path in paths
        for spec in specs
    )
    chosen = found if options.only is None else _pick(found, options.only)
    return tuple(replace(item, number=place) for place, item in enumerate(chosen))


def _list_work(
    kind: str, options: CheckOptions
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The workloads of a subject, and the aggregation paths of each."""
    if kind != "optimizer":
        return (_BROUGHT.get(kind, PROGRAM),), ("default",)
    usual = DEFAULT_WORKLOADS if options.in_flight == 1 else IN_FLIGHT_WORKLOADS
    return options.workloads or usual, options.paths


def check_only(target: str, options: CheckOptions, machine: Machine) -> None:
    """Refuse an id that no scenario has, whatever the subject is: before tasks start.

    Args:
        target: The subject's label.
        options: With the id that is wanted, or none.
        machine: As for `plan_scenarios`.

    Raises:
        BadInputError: No subject has it.
    """
    if options.only is None:
        return
    ids: dict[str, list[str]] = {}
    for kind in ("optimizer", *_BROUGHT, "program"):
        with suppress(BadInputError):  # what such a subject cannot have
            found = plan_scenarios(target, kind, replace(options, only=None), machine)
            ids[kind] = [item.scenario.id for item in found]
    known = dict.fromkeys(chain.from_iterable(ids.values()))
    if known and options.only not in known:
        own = ids.pop("optimizer", ())
        raise _make_unknown_id(options.only, own, known.keys() - {*own})


def list_clusters(options: CheckOptions) -> tuple[tuple[ClusterSpec, ...], ...]:
    """The clusters of each scenario, as far as they are known before the subject is."""
    workloads = len(options.workloads or DEFAULT_WORKLOADS)
    before = filter(None, [options.restore_from])
    specs = tuple(map(ClusterSpec.parse, before))
    return tuple(
        (ClusterSpec.parse(cluster), *specs)
        for cluster in options.clusters
        for _ in range(workloads * len(options.paths))
    )


def expect_machine(options: CheckOptions, machine: Machine) -> Machine:
    """A machine with the GPUs that are required of it.

    What an engine tells of is what it was asked for: there GPUs are named by `@gpu`.
    """
    is_asked = options.engine != "local"
    return machine if is_asked else machine.with_gpus(options.require_gpus)


def name_cluster(cluster: str, machine: Machine) -> str:
    """What a cluster spec is called in a verdict: an open one by what a machine has."""
    return _name(_resolve(cluster, machine))


def _name(spec: ClusterSpec) -> str:
    return str(spec).removesuffix("@cpu")


def _resolve(cluster: str, machine: Machine) -> ClusterSpec:
    return ClusterSpec.parse(cluster).resolve(gpus=machine.gpus, cpus=machine.cores)


def _join(split: tuple[int, ...]) -> str:
    return ",".join(map(str, split))


def _pick(planned: tuple[Planned, ...], wanted: str) -> tuple[Planned, ...]:
    found = tuple(item for item in planned if item.scenario.id == wanted)
    if not found:
        raise _make_unknown_id(wanted, [item.scenario.id for item in planned])
    return found


def _make_unknown_id(
    wanted: str, ids: Iterable[str], brought: Iterable[str] = ()
) -> BadInputError:
    others = ", ".join(sorted(brought))
    of_others = f"of a program or a model {others}" if others else ""
    told = "; ".join(filter(None, (", ".join(ids), of_others)))
    return BadInputError(f"No scenario has the id {wanted!r}. Expected one of {told}.")
