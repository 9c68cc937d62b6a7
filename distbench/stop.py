"""Where a run stops in a debugger: a value that flows past a point of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from distbench.cluster import ClusterSpec, spell_kinds
from distbench.errors import BadInputError, make_unknown_name_error
from distbench.spelling import spell
from distbench.trace import PHASES, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A point of a run.

    Attributes:
        step: Number of the step, from 0.
        phase: What of it.
        replica: Global number of the replica.
        variable: Path of the variable, or the end of one; empty stops at each.
        given_draws: Whether steps are given what they draw: beside other random numbers
            than the replica has, those of one device say nothing.
    """

    step: int = 0
    phase: Phase = "local_gradient"
    replica: int = 0
    variable: str = ""
    given_draws: bool = True

    def __post_init__(self) -> None:
        if self.phase not in PHASES:
            raise make_unknown_name_error("Phase", self.phase, PHASES)
        for name in ("step", "replica"):
            if getattr(self, name) < 0:
                raise BadInputError(
                    f"{spell(name)} must not be negative. "
                    f"Received: {getattr(self, name)}."
                )

    def fits(self, step: int, phase: Phase, variable: str, replica: int) -> bool:
        """Whether a value is meant."""
        ending = variable == self.variable or variable.endswith(f"/{self.variable}")
        return (step, phase, replica) == (self.step, self.phase, self.replica) and (
            not self.variable or ending
        )


def check_stoppable(spec: ClusterSpec) -> None:
    """Refuse a cluster that has no step that can be stopped.

    Raises:
        BadInputError: A chief schedules its steps.
    """
    if spec.traits.scheduled:
        raise BadInputError(
            f"'{spec}' has no step that can be stopped: the chief sends a graph to its "
            "workers. Expected: "
            f"{spell_kinds(lambda kind: not kind.scheduled)}. To look at the "
            "recorded values, use 'distbench check --keep DIR' and 'distbench trace'."
        )


def stop_to_json(stop: Stop) -> Mapping[str, Any]:
    """Fields by name."""
    return asdict(stop)


def stop_from_json(fields: Mapping[str, Any]) -> Stop:
    """What `stop_to_json` gave."""
    return Stop(**fields)
