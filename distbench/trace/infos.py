"""What is known of the variables and metrics of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from distbench.trace.owners import rename_owner


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableInfo:
    """What is known of a variable of the subject.

    Attributes:
        path: Unique name, equal on one device and on the cluster.
        role: `variable` (of the model), `slot` (any other state of the optimizer) or
            `iterations` (an integer step counter).
        of: Path of the model variable that a slot belongs to, or `""`.
        shape: Shape of one replica's value.
        dtype: NumPy name of the dtype.
        synchronised: Whether all replicas are meant to hold the same value.
        trainable: Whether the subject trains it by gradients.
        adds_up: Whether what the replicas hold is read as its sum.
        averages: Whether what the replicas assign to it, or hold, is averaged.
        takes_first: Whether what the first replica assigns to it, or holds, stands for
            all.
        is_carried: Whether every replica has it for itself and a step makes nothing of
            it but what it holds next.
        is_scratch: Whether a step assigns all of it before it makes anything of it: no
            later step goes on from what it holds.
        decided_by: What may, if so, treat other numbers of it in another way, as a
            message calls it: what compares, rounds or limits what is made of it, or
            may look at it between two steps. Empty where nothing does.
        listed: Whether the subject lists it among its variables.
        between: Whether no step uses it: a program holds it, and its loop may use it
            between two steps.
    """

    path: str
    role: Literal["variable", "slot", "iterations"]
    shape: tuple[int, ...]
    dtype: str
    of: str = ""
    synchronised: bool = True
    trainable: bool = True
    adds_up: bool = False
    averages: bool = False
    takes_first: bool = False
    is_carried: bool = False
    is_scratch: bool = False
    decided_by: str = ""
    listed: bool = True
    between: bool = False

    @property
    def is_mean_of_copies(self) -> bool:
        """Whether it trains as the mean of copies that each replica has for itself.

        That mean is its value, whatever the copies are, as under local SGD.
        """
        is_own = not self.synchronised and self.role == "variable"
        return is_own and self.trainable and self.averages

    @property
    def is_of_first(self) -> bool:
        """Whether replicas have it for themselves, and the first one's is all of it."""
        return self.takes_first and not self.synchronised

    @property
    def owner(self) -> str:
        """Path of the model variable that a slot belongs to, or else its own."""
        return self.of or self.path

    @property
    def kind(self) -> str:
        """What an optimizer calls a slot: its path, with `*` for its variable's.

        That is one place: see `rename_owner`.
        """
        return rename_owner(self.path, self.of, "*") if self.of else self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricInfo:
    """A number, or several, that a metric makes of its state and shows.

    What it shows after a step is recorded under the phase `loss` and its name, as
    `WHOLE`: replicas have only parts of it.

    Attributes:
        name: Unique among metrics.
        state: Paths of its variables.
    """

    name: str
    state: tuple[str, ...]
