"""Everything that a judgement of one run rests on: pure data, no processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from distbench.examples import Counted, Examples
from distbench.fed import Fed
from distbench.scenario.choices import TIERS as TIERS
from distbench.scenario.choices import Tier as Tier
from distbench.trace import (
    GRADIENTS,
    PHASES,
    Phase,
    Trace,
    TraceKey,
    Value,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How far the reference says what the cluster has to arrive at.

    All of it by default: the whole batch on one device, and each of its shards. Whoever
    finds that a program cannot arrive at that says here what is left to compare.

    Attributes:
        shards_known: Whether the reference's value for replica r is what replica r has
            to compute (a workload of the bench). If not, only sums over the replicas
            can be wrong and the reference's shards merely help to explain.
        summed: Whether sums over the replicas are compared though shards are known: a
            penalty, say, may be dealt out in more than one way.
        known: Phases of a step in which the reference says what the cluster must
            arrive at; of the others only what follows from the phase before is known.
        lost: Share of a value that a step loses in a narrower dtype, where that is all
            that keeps the state from being known; else 0.
        settled: Updates of which the reference says besides what becomes of what they
            train, by step and variable: one device leaves them out, and so does whoever
            adds up its shards. If it leaves out a whole step, of all else as well.
        spoilt: Steps in which some of the reference's gradients are not finite, and
            say nothing of where those of the replicas are.
        parted: Steps that replicas take and one device leaves out, or the other way
            round, where something overflows on one side alone; of a free run also all
            later ones. The reference says nothing of them but what was there before.
        begun: Losses and own gradients of the whole batch in these steps that no update
            in them has led.
        overflowing: Steps in which replicas, the whole batch or both overflow as they
            may: of what is not finite on one side there, nothing is due of the other.
        slack: How much farther than by noise a correct value may lie from the
            reference's, where that is made of a gradient which is near the sum of the
            shards; 0 where it is not named.
        weighted: What each replica's gradient has to count in the first step, where a
            program weighs them before it adds them up: those that were observed are
            here multiplied by it. Empty where they are shares of the whole as they are.
        times_share: How many times the shares, which they are taken for here, gradients
            are that are averaged.
    """

    shards_known: bool = True
    summed: bool = False
    known: tuple[Phase, ...] = PHASES
    lost: float = 0.0
    settled: frozenset[tuple[int, str]] = frozenset()
    spoilt: frozenset[int] = frozenset()
    parted: frozenset[int] = frozenset()
    begun: frozenset[TraceKey] = frozenset()
    overflowing: frozenset[int] = frozenset()
    slack: Mapping[TraceKey, float] = field(default_factory=dict)
    weighted: tuple[float, ...] = ()
    times_share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What is known of the subject and of its run besides numbers.

    Attributes:
        loss_reduction: How the replicas' losses combine; None accepts sum and mean.
        differentiated: Whether the losses are what a step differentiates, or makes that
            of, and not what it returns.
        averages: Whether replicas are to have gradients of N times their shares, and to
            average them, as an aggregation path of the bench has it.
        kept: Variables of the model that follow from the gradients of others and not
            from examples, as a momentum that a program keeps by hand; asked of where
            there are `sums`, or what is `due`.
        steered: State that the step moves by what it keeps of the examples besides
            gradients, as by a curvature that it estimates; asked of likewise.
        drawn_anew: Variables that start from other values each time that the subject
            is built on one device; only the replicas' can be compared.
        undetermined: State of which no replay tells what it has to be. The batch leads
            it besides its gradients, as a rate that follows the loss, or a norm that is
            made of gradients before they are reduced: one device comes to another value
            from the same gradients and other examples. Or a replay of
            one device's own gradients misses what that came to by as much: the rule
            keeps a number of Python's, or draws at random.
        joined: Whether no shard has a loss of its own, though replicas exchange nothing
            but data: what follows from their counts, as soft targets do, changes more
            than the scale of it.
        restored: Whether the cluster restored its state from a checkpoint; the
            reference starts from what was saved.
        scheduled: Whether each step is scheduled as a whole, on one of the workers, as
            under parameter servers.
        compiled: Whether XLA compiles the step as a whole, on the cluster and on one
            device: then nothing on the way to the state is known.
        limits: Whether one device changes larger gradients than those of the run before
            they are summed, and none of these, as a clip does.
        unlimited: As what part of the run's gradients smaller ones show their size
            behind such a change, where it leaves none of these any: a clip limits all.
            0 where that is not so, or no smaller ones do.
        sums_means: Whether replicas whose losses are averaged reduce every gradient
            themselves, and hand it to an optimizer that sums.
        guards: Whether one device leaves out a step whose gradients are not finite.
        reduces_at: The line of the subject's own code that reduces gradients; empty
            where an optimizer of Keras, or the bench, does alone.
        other_kernels: Whether an update may have gone through other kernels on the
            cluster than on one device, as on GPUs, where the strategy has a say in
            which op a kernel of the CPU computes: then it rounds otherwise.
        other_start: Whether initial values may come from other kernels than on one
            device, which has no GPU where variables lie on CPUs: random numbers that
            are normal round otherwise there.
    """

    loss_reduction: Literal["sum", "mean"] | None = "sum"
    differentiated: bool = False
    averages: bool = False
    kept: tuple[str, ...] = ()
    steered: tuple[str, ...] = ()
    drawn_anew: tuple[str, ...] = ()
    undetermined: tuple[str, ...] = ()
    joined: bool = False
    restored: bool = False
    scheduled: bool = False
    compiled: bool = False
    limits: bool = False
    unlimited: float = 0.0
    sums_means: bool = False
    guards: bool = False
    reduces_at: str = ""
    other_kernels: bool = False
    other_start: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """Intermediate values of the first steps, from a run of their own.

    Attributes:
        reference: One device, with each shard alone as well.
        observed: The cluster.
    """

    reference: Trace
    observed: Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One tier of one scenario, observed and expected.

    Attributes:
        tier: In `exact` and `bounded` the synchronised state is set from the reference
            before each step, so a step is judged by itself. In `exact` the model
            variables are moreover set back to their initial dyadic values, and every
            bound is 0. In `free` nothing is set.
        observed: What the cluster did. Loss and gradients of each replica; slots,
            variables and iterations after each step on each replica that holds them;
            the same at step `INITIAL`, before the first step.
        reference: The single-device run. With replica `WHOLE`: the global batch as one
            device computes it, and the state after each step. With replica r: loss and
            local gradient of shard r by itself, and the state that is not synchronised
            after each of its steps, which start from that after the last; of the model,
            also the state without a gradient.
        starts: The run of one device whose states the steps started from; None if the
            reference is that.
        twins: The reference again, mathematically equal (examples permuted, variables
            perturbed by one rounding): what they differ by is noise. Only `WHOLE`
            values.
        reruns: Loss and local gradients of the reference's shards once more, each trace
            in other graphs than the reference's. Only of a workload of the bench in
            the bounded tier, and only where a replica's value is near that of its
            shard and not the same.
        moved: The single-device update fed with the reference's own gradients, from a
            state that was moved by a rounding of a narrower dtype in which the step
            computes, as far as what it adds to that state goes: how far what leads
            undetermined state besides its gradients moves it. Empty where there is no
            such state or dtype.
        earlier: The steps from the variables of 1, 2, … steps before, with their own
            batches (loss and local gradients); empty where those of the cluster are as
            they should be.
        terms: The gradients of the global batch on one device, and of each shard, by
            each term of the loss alone. Empty where the loss has one, or the gradients
            are as they should be.
        penalty: Gradient of the regularisation alone on one device, `local_gradient`
            of `WHOLE` in the first step or in each; None where the subject's penalty
            is not known apart.
        probes: Further single-device runs, which tell whether a program depends on how
            examples are grouped or rows repeated: `regrouped`, in the first step,
            shards of the same sizes with other examples; `doubled`, each shard of each
            step with every example twice (loss, local gradients and state of the model
            that no gradient trains, by replica);
            `tripled`, the shard that is the largest in the first step with every
            example three times; `quadrupled`, in the first step alone, that with every
            example four times, where it is neither a sum nor a mean; there also
            `swapped-first`, `swapped-last` and `swapped-both`, that with some of its
            examples, some others, and both changed for other shards' (where shards are
            uneven); `once` and `twice`, that shard of the first step and its double
            with other random numbers in each step of the trace; `distinct`, the update
            with repeated rows of sparse gradients added up (state, as replica 0);
            `rounded-0`, …, the global batch with the variables moved by a rounding of a
            narrower dtype in which the step computes (loss, gradients and state);
            `exchanged`, each shard, whose collectives give what those of the global
            batch do, `exchanged-regrouped`, the first step's with other examples,
            `exchanged-doubled`, with each twice (loss and local gradients);
            `met-sum` and `met-mean`, each shard, whose collectives give what those of
            all shards together do (loss and gradients, and state after each step), and
            with a 1/N or N times as much of gradients as `met-sum-divided` and so on;
            `joint`, each shard of each step but the first from what the global batch
            has made of the replicas' own state, `joint-regrouped`, the second step's
            with other examples, `joint-doubled`, with each twice (loss, local gradients
            and own state);
            `exchanged-divided` and `exchanged-multiplied`, each step of the global
            batch with what is exchanged ÷ N and × N;
            `term-0`, …, each term of a loss alone, of the global batch and each shard
            (loss and local gradients), and `term-0-doubled`, `term-0-tripled`, the
            largest shard of the first step so often;
            `uncut`, each step from the reference's state, where no variable is cut into
            shards (state).
        fed: What follows on one device from the cluster's own gradients.
        measure: How far the reference says what the cluster has to arrive at.
        subject: What is known of the subject and of its run besides numbers.
        examples: What the input pipeline gave, where the subject brings one.
        counted: Which examples count on one device. None where all shards together make
            up the batch, and where the order of the examples does not matter.
        inside: What losses are computed of. None unless somebody looked there, as where
            no cause was found without.
        inside_own: What those of the first step are computed of on one device, of the
            global batch and of each shard by itself. None where shards make up the
            batch, and where one device has nothing to show of what they take.
    """

    tier: Tier
    observed: Trace
    reference: Trace
    starts: Trace | None = None
    twins: tuple[Trace, ...] = ()
    reruns: tuple[Trace, ...] = ()
    moved: tuple[Trace, ...] = ()
    earlier: tuple[Trace, ...] = ()
    terms: tuple[Trace, ...] = ()
    penalty: Trace | None = None
    probes: Mapping[str, Trace] = field(default_factory=dict)
    fed: Fed = field(default_factory=Fed)
    measure: Measure = field(default_factory=Measure)
    subject: Traits = field(default_factory=Traits)
    examples: Examples | None = None
    counted: Counted | None = None
    inside: Inside | None = None
    inside_own: Inside | None = None

    def change_traces(self, change: Callable[[Trace], Trace]) -> Evidence:
        """This evidence with every trace that has all steps of the run changed."""
        return replace(
            self,
            observed=change(self.observed),
            reference=change(self.reference),
            starts=None if self.starts is None else change(self.starts),
            twins=tuple(map(change, self.twins)),
            reruns=tuple(map(change, self.reruns)),
            moved=tuple(map(change, self.moved)),
            terms=tuple(map(change, self.terms)),
            fed=self.fed.change_traces(change),
        )

    @property
    def sees_gradients(self) -> bool:
        """Whether any gradient of the cluster's was seen."""
        return any(key.phase in GRADIENTS for key in self.observed.values)

    @property
    def narrowest(self) -> str:
        """The dtype of the fewest digits in which a step computes; empty if unknown."""
        return str(self.reference.notes.get("narrowest") or "")

    def name_gradients(
        self, key: TraceKey, phase: Phase, variable: str
    ) -> Iterator[TraceKey]:
        """Where the gradients of a variable may be, of a value's step and replica.

        A gradient is made of those of its own update. State is that after all updates
        of a step, and may follow from any.
        """
        calls = range(max(self.observed.calls, self.reference.calls))
        for call in (key.call,) if key.phase in GRADIENTS else calls:
            yield replace(key, phase=phase, variable=variable, call=call)

    def get_before(self, step: int, phase: Phase, variable: str) -> Value | None:
        """The state before a step: what the step started from, as one device had it.

        In the free tier a cluster that went wrong started from something else.
        """
        if self.tier == "exact" and phase == "variable":
            step = 0
        key = TraceKey(step=step, phase=phase, variable=variable)
        return (self.starts or self.reference).get(key.before)

    def get_held(self, key: TraceKey) -> Value | None:
        """What a replica held before the step of some state; see `get_before`.

        State that one device does not have is the cluster's own in all tiers.
        """
        left = self.observed.get(replace(key, step=key.step - 1))
        if self.tier == "free":
            return left
        before = self.get_before(key.step, key.phase, key.variable)
        return left if before is None else before
