"""Scenarios: frozen, serialisable descriptions of what one cluster has to do."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError
from distbench.fault import Fault, check_faults
from distbench.limits import UNASKED_S
from distbench.partitioner import check_partitioner, check_restore_partitioner
from distbench.scenario.choices import (
    BROUGHT,
    FIRST_STEPS,
    MODEL,
    PIPELINE,
    PROGRAM,
    check_in_flight,
    check_loss_weight,
    check_numbers,
    check_path,
    check_restore_after,
    check_workload,
)
from distbench.split import check_split, split_unevenly

_SCHEMA = "distbench/scenario/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What one cluster has to do, and on which data.

    Attributes:
        target: Label of the subject, `package.module:attribute` or a path.
        workload: One of `WORKLOADS` or `BROUGHT`.
        cluster: Text of a cluster spec.
        path: One of `PATHS`.
        steps: Number of steps.
        dtype: NumPy name of the dtype that the workload trains in.
        seed: Seed of the data and the initial values.
        keras: `legacy` or `3`; None keeps the user's `TF_USE_LEGACY_KERAS`.
        jit: Whether the step is compiled by XLA; None leaves it to TensorFlow.
        timeout_s: Deadline of the whole cluster, in seconds.
        examples: Size of the global batch; 0 takes four for each replica, rounded up
            to a power of two, so that dividing by it is exact.
        split: Examples of each replica; empty splits the batch unevenly.
        restore_from: The cluster that trains first and saves what this one restores
            and goes on from; empty starts afresh.
        restore_after: How many steps of its own it trains before it restores: with 0
            there are no slots yet, and the restore waits for them.
        in_flight: How many steps a coordinator schedules before it waits for them. With
            more than 1, `steps` counts how often it waits.
        partitioner: Into which shards parameter servers cut variables, see
            `distbench.partitioner`; empty leaves them whole.
        restore_partitioner: How the cluster `restore_from` cuts its variables.
        faults: Texts of what befalls its tasks and replicas, see `distbench.Fault`.
        loss_weight: What the losses of a workload are multiplied by, or what the tapes
            of a subject with losses of its own give.
        op_determinism: Whether TensorFlow has ops repeat their bits, as those of GPUs
            that add up what comes as it comes do not.
        given_draws: Whether steps are given random numbers that belong to examples, in
            the place of those that they draw.
    """

    target: str
    workload: str = PROGRAM
    cluster: str = "mwms:2"
    path: str = "default"
    steps: int = FIRST_STEPS
    dtype: str = "float32"
    seed: int = 1
    keras: str | None = None
    jit: bool | None = None
    timeout_s: float = UNASKED_S
    examples: int = 0
    split: tuple[int, ...] = ()
    restore_from: str = ""
    restore_after: int = 0
    in_flight: int = 1
    partitioner: str = ""
    restore_partitioner: str = ""
    faults: tuple[str, ...] = ()
    loss_weight: float = 1.0
    op_determinism: bool = False
    given_draws: bool = False

    def __post_init__(self) -> None:
        if not self.target:
            raise BadInputError("A scenario needs a target. Received an empty label.")
        if self.workload not in BROUGHT:
            check_workload(self.workload)
        check_path(self.path)
        check_numbers(
            steps=self.steps,
            seed=self.seed,
            timeout_s=self.timeout_s,
            dtype=self.dtype,
            keras=self.keras,
        )
        replicas = ClusterSpec.parse(self.cluster).replicas
        check_split(self.split, self.examples, replicas, f"Scenario '{self.id}'")
        check_in_flight(self.in_flight, ClusterSpec.parse(self.cluster))
        check_partitioner(self.partitioner, ClusterSpec.parse(self.cluster))
        check_restore_partitioner(self.restore_partitioner, self.restore_from)
        if self.restore_from:
            ClusterSpec.parse(self.restore_from)
        check_restore_after(self.restore_after, self.restore_from, self.steps)
        check_loss_weight(self.loss_weight)
        check_faults(
            self.faults,
            ClusterSpec.parse(self.cluster),
            steps=self.scheduled,
            in_flight=self.in_flight,
        )

    @property
    def id(self) -> str:
        """Unique within a check: `mlp-adam-mwms:2-aggregator`, `program-mwms:2`."""
        parts = [self.subject, self.cluster]
        if self.workload not in BROUGHT:
            parts = [self.workload, *parts, self.path]
        elif self.path != "default":
            parts.append(self.path)
        if self.restore_from:
            parts += ["from", self.restore_from.removesuffix("@cpu")]
        if self.restore_partitioner:
            parts += [self.restore_partitioner, "to"]
        if self.restore_after:
            parts += ["after", str(self.restore_after)]
        if self.partitioner:
            parts.append(self.partitioner)
        if self.in_flight > 1:
            parts += [str(self.in_flight), "in", "flight"]
        if self.faults:
            parts += ["with", *self.faults]
        return "-".join(parts)

    @property
    def subject(self) -> str:
        """Short name of the subject: `adam` for `my/optimizers.py:make_adam`."""
        name = self.target.rpartition(":")[2].rpartition("/")[2]
        plain = re.sub(r"[^\w.]+", "_", name).strip("_") or "subject"
        return plain.removeprefix("make_") or plain

    @property
    def spec(self) -> ClusterSpec:
        """The parsed cluster spec."""
        return ClusterSpec.parse(self.cluster)

    @property
    def injected(self) -> tuple[Fault, ...]:
        """The parsed faults."""
        return tuple(map(Fault.parse, self.faults))

    @property
    def shards(self) -> tuple[int, ...]:
        """Examples of each replica.

        Raises:
            BadInputError: The cluster spec still says `all`.
        """
        if self.split:
            return self.split
        replicas = self.spec.replicas
        if not replicas:
            raise BadInputError(
                f"Scenario '{self.id}': the number of replicas is open. "
                "Resolve the cluster spec first."
            )
        examples = self.examples or 1 << (4 * replicas - 1).bit_length()
        return split_unevenly(examples, replicas)

    @property
    def trained_before(self) -> Scenario:
        """What the cluster trains that saves what this scenario restores."""
        return replace(
            self,
            cluster=self.restore_from,
            partitioner=self.restore_partitioner,
            restore_from="",
            restore_partitioner="",
            restore_after=0,
            faults=(),
            split=(),
        )

    @property
    def may_go_on(self) -> bool:
        """Whether further steps would go on from its own, with data of one device."""
        return (
            self.workload != PIPELINE and not self.restore_from and self.in_flight == 1
        )

    @property
    def scheduled(self) -> int:
        """Number of steps that are run in all."""
        return self.steps * self.in_flight

    @property
    def batches(self) -> int:
        """Number of batches that are asked for: of all steps on either cluster."""
        return max(self.scheduled, self.restore_after)

    @property
    def global_batch(self) -> int:
        """Number of examples of one step."""
        return sum(self.shards)


def find_asked_split(workload: str, split: tuple[int, ...]) -> tuple[int, ...]:
    """The split that was asked for; empty where it is the usual one.

    Args:
        workload: Who brings the batches.
        split: What each replica was given; empty if nothing was.
    """
    if not split or workload == PIPELINE:
        return ()
    if workload == MODEL:
        return split if len(set(split)) > 1 else ()
    usual = sum(split) >= len(split) and split == split_unevenly(sum(split), len(split))
    return () if usual else split


def scenario_to_json(scenario: Scenario) -> str:
    """The scenario as a JSON document."""
    return json.dumps({"schema": _SCHEMA, **asdict(scenario)})


def scenario_from_json(text: str) -> Scenario:
    """Read a scenario back.

    Raises:
        BadInputError: The text is not a scenario.
    """
    try:
        document: dict[str, Any] = json.loads(text)
        if document.pop("schema") != _SCHEMA:
            raise KeyError("schema")
        for name in ("split", "faults"):
            document[name] = tuple(document[name])
        return Scenario(**document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, BadInputError):
            raise
        raise BadInputError(
            f"This is not a scenario ({type(error).__name__}: {error}). "
            f"Expected JSON of schema {_SCHEMA!r}."
        ) from error
