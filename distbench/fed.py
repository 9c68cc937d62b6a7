"""What follows on one device from values that a cluster gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, cast

from distbench.trace import Phase, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """What follows on one device from gradients that the cluster gave.

    Each trace is of single-device steps or updates, fed with values that were observed.

    Attributes:
        replays: The update, by the phase where observed values were put in:
            `reduced_gradient` gives the applied gradient, slots, variables and
            iterations that follow from each replica's observed reduced gradient;
            `applied_gradient` gives what follows from the applied one, if that is not
            what follows; `local_gradient` what would follow from each replica's own,
            if the state is not.
        repeated: The update applied 2, 3, … `times` (a note of each) in one step to
            each replica's observed reduced gradient, to all state or, with the slots
            put back in between, to the variables alone. Empty where the state is what
            follows from applying it once.
        decayed: The update fed with each replica's observed reduced gradient, or with
            the sum of the local ones (then as that of replica 0), from variables that
            are `times` as large, as a note has it: their decay counts as often. If
            `whole`, slots are as large as well. Empty where the state is what follows,
            or where nothing decays.
        counted: The update fed with each replica's observed reduced gradient, where the
            counter of steps is at other numbers, as a note has it (`count`): N times as
            large, an N-th. Empty where the state is what follows, or where no rule
            looks at the counter.
        traced: The update fed with each replica's observed reduced gradient, by steps
            that were traced where a number of Python's stands as replicas leave it, as
            a note has it (`number`). Empty where the state is what follows, or where
            tracing moves no such number.
        recounted: The update fed with an N-th of each replica's observed reduced
            gradient, or with N times as much (`factor`, a note), or with that gradient
            and a step that is told of N replicas (`told`). Left out is what leads to
            the same as the gradients themselves; empty where the state follows.
        configured: The update fed with each replica's observed reduced gradient, by
            optimizers with the settings that the replica's have; a note has the paths
            of those that one device could not take (`untried`). None where the state is
            what follows, or where no setting differs.
        overwritten: The update fed with each replica's observed reduced gradient, or
            with what all replicas have of each row (then as that of replica 0), of
            which the last slice of a row counts alone, or the first, or their mean, as
            a note has it (`kept`). Empty where the state is what follows, or where no
            row has several slices.
        turns: The update fed with the observed reduced gradient of one replica after
            the other in one step, where all share their variables: the state that this
            leaves, as replica 0. None where it is of no interest.
        apart: The step fed with each replica's own gradients: the reduced ones tell
            what is done to a gradient on its way, the state what a rule keeps of them
            before the sum. None where nothing is.
        sums: The step fed with sums of the replicas' own gradients, right and wrong
            ones: what follows, as that of replica 0. Notes of each say which replicas
            are `kept`, times which `factor`, and rounded to which `narrow` dtype; one
            of factor 0 leaves what no gradient leads. Where a step takes several
            gradients of a variable by hand, all of them were multiplied in place of a
            sum, which is of all replicas then. Empty where the sum was seen as it is
            made, or is right.
        again: The step fed with the sum of the replicas' own gradients, which counts N
            times what it hands to a collective after it came from one: what follows, as
            that of replica 0. None where nothing does so, or the sum led to what is
            right.
        due: The step fed with the sum of the replicas' own gradients: what follows, as
            that of replica 0. None where the sum was seen.
        changed: The same where the sum was seen, one device makes something else of it
            (clips it, say), and the cluster has that. None where it is the sum itself.
        mean: The same of their mean.
        op_by_op: The replay of the reduced gradients with nothing compiled. Which ops
            XLA joins, and so which results it does not round, depends on all that it
            compiles together, which differs between a cluster and one device. None
            where XLA is off, or where the state is what follows bit for bit.
        formed: The update fed with observed gradients in the form that one device has
            them in, its rows as often as there, at the `phase` that a note names: what
            follows (applied gradients and state), of the steps and replicas that have
            some in another form. Empty where all have the same. Where the step draws,
            a second trace has sums that were moved by as much as they may round.
        resumed: Loss and local gradients of the reference's shards in steps that update
            several times, where each update takes what the cluster reduced: a later
            gradient follows from the updates before it. None of other steps.
        held: Each step of the global batch in which state that no gradient trains is
            assigned what the replicas hold of it, as a note has it by paths (`held`):
            loss and local gradients. None where that state is what one device has.
        scratch: What comes out otherwise in steps of the global batch, as `WHOLE`,
            where state that a step assigns before it uses it is assigned what the
            replicas hold of it. Notes have the paths of what is `held`, and of what of
            it Python reads `between` two steps, and whether something is neither the
            same nor an N-th then, as where a step `limits` it. None where that state is
            what one device has.
        units: What comes out otherwise in steps of the global batch, as `WHOLE`, where
            a part of the state that replicas hold N times, or an N-th of, is twice as
            large at their start. Notes have its `path` and `factor`, and the variables
            whose gradients, so many times (`part`) as large, are `undone` by all such
            state: bit by bit, whatever their size. Empty in tiers other than free.
    """

    replays: Mapping[Phase, Trace] = field(default_factory=dict)
    repeated: tuple[Trace, ...] = ()
    decayed: tuple[Trace, ...] = ()
    counted: tuple[Trace, ...] = ()
    traced: tuple[Trace, ...] = ()
    recounted: tuple[Trace, ...] = ()
    configured: Trace | None = None
    overwritten: tuple[Trace, ...] = ()
    turns: Trace | None = None
    apart: Trace | None = None
    sums: tuple[Trace, ...] = ()
    again: Trace | None = None
    due: Trace | None = None
    changed: Trace | None = None
    mean: Trace | None = None
    op_by_op: Trace | None = None
    formed: tuple[Trace, ...] = ()
    resumed: Trace | None = None
    held: Trace | None = None
    scratch: Trace | None = None
    units: tuple[Trace, ...] = ()

    @classmethod
    def gather(
        cls,
        replays: Mapping[Phase, Trace],
        find: Callable[[str], tuple[Trace, ...]],
    ) -> Fed:
        """Put together what was fed.

        Args:
            replays: See above.
            find: The traces of another field, by its name; of one that holds a single
                trace, that or none.
        """
        others: dict[str, Any] = {}
        for other in _list_others(cls):
            found = find(other.name)
            is_single = other.default is None
            others[other.name] = next(iter(found), None) if is_single else found
        return cls(replays=replays, **others)

    @property
    def traces(self) -> dict[str, tuple[Trace, ...]]:
        """By field but `replays`, what `gather` finds."""
        found = {o.name: getattr(self, o.name) for o in _list_others(type(self))}
        return {
            name: held if isinstance(held, tuple) else () if held is None else (held,)
            for name, held in found.items()
        }

    def join(self, *others: Fed) -> Fed:
        """Put together what was fed in several ways; single traces are those of one."""
        every = (self, *others)
        replays = {p: trace for fed in every for p, trace in fed.replays.items()}
        return self.gather(
            replays,
            lambda name: tuple(trace for fed in every for trace in fed.traces[name]),
        )

    def change_traces(self, change: Callable[[Trace], Trace]) -> Fed:
        """Return a copy whose traces went through `change`."""
        others = {
            other.name: _change(getattr(self, other.name), change)
            for other in _list_others(type(self))
        }
        replays = {phase: change(trace) for phase, trace in self.replays.items()}
        return replace(self, replays=replays, **others)


def get_factor(trace: Trace) -> float:
    """As how many times the sum one device took it; see `Fed.sums`."""
    return float(cast(float, trace.notes["factor"]))


def _list_others(cls: type[Fed]) -> list[Field[Any]]:
    """The fields of single traces, and of several in a row."""
    return [known for known in fields(cls) if known.name != "replays"]


def _change(found: Any, change: Callable[[Trace], Trace]) -> Any:
    """A trace, or several in a row, changed; None where there is none."""
    if isinstance(found, tuple):
        return tuple(map(change, found))
    return None if found is None else change(found)
