"""One subject, built once in this task, run step by step with taps on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from distbench.cluster import ClusterSpec, Task
from distbench.errors import BadInputError
from distbench.trace import (
    PHASES,
    MetricInfo,
    Phase,
    Recorded,
    TraceKey,
    Values,
    VariableInfo,
)
from distbench.trace.shelf import Shelf
from distbench.worker.families import find_counter, install_taps, name_family
from distbench.worker.process.failures import SubjectError, find_cause
from distbench.worker.process.intercept import hide_from_autograph
from distbench.worker.state.components import list_shards, write_component
from distbench.worker.state.metrics import name_metrics, name_state, read_result
from distbench.worker.state.reachable import find_held, walk_variables
from distbench.worker.state.unlisted import list_unlisted
from distbench.worker.state.values import are_equal
from distbench.worker.state.variables import VariableTable, list_state
from distbench.worker.stepping.program import Program
from distbench.worker.stepping.refused import (
    check_listed,
    check_optimizers,
    check_shapes,
    check_values,
)
from distbench.worker.stepping.slots_ahead import make_slots_ahead
from distbench.worker.stepping.steps import Step
from distbench.worker.taps.board import TapBoard
from distbench.worker.taps.collect import (
    State,
    collect_state,
    collect_taps,
    digest_state,
    read_state,
)
from distbench.worker.taps.given_draws import GivenDraws
from distbench.worker.taps.handed import Handed
from distbench.worker.taps.intermediates import Intermediates
from distbench.worker.taps.tapes import watch_tapes


class Session:
    """A built subject in one task.

    Args:
        program: What to train.
        strategy: Under which it trains.
        spec: The resolved cluster spec.
        task: Which task of it this is.
        tapped: Whether to observe; without, the subject runs as if the bench were
            not there, which tests compare with. What XLA compiles is never observed.
        alone: Whether to tell by it if the bench or the subject fails: then nothing is
            observed, and what is raised is the subject's.
        gives_draws: Whether steps are given the random numbers that they draw; see
            `GivenDraws`.

    Attributes:
        varies: Whether batches have several sizes. A step is then traced once for all
            of them, as over a pipeline: a worker that traced anew for its own sizes
            would wait in other collectives than those whose shards stay as they are.
        shelf: Where large arrays of what is recorded are put; None keeps them.
        begun: By step, digests of the state in which it began last, by path; of a
            program that does nothing between steps, none.
    """

    def __init__(
        self,
        program: Program,
        strategy: tf.distribute.Strategy,
        spec: ClusterSpec,
        task: Task,
        *,
        tapped: bool = True,
        alone: bool = False,
        gives_draws: bool = False,
    ) -> None:
        self.alone = alone
        self.program = program
        self.strategy = strategy
        self.spec = spec
        is_server = spec.kind == "ps"
        self.first_replica = (
            task.index * spec.replicas_per_worker if spec.kind == "mwms" else 0
        )
        device = "/job:chief/device:CPU:0" if is_server else "/device:CPU:0"
        self.board = TapBoard(first_replica=self.first_replica, device=device)
        self._draws = (
            GivenDraws(
                [r for r in range(spec.replicas) if self.has_replica(r)],
                self.board.find_replica,
                lambda: [variable.info.shape for variable in self.table.state],
                device,
            )
            if gives_draws
            else None
        )
        with self.guard("build"), strategy.scope():
            program.build(strategy)
            self._given = list(program.optimizers())
            self.optimizers = find_held(
                self._given, lambda item: name_family(item) is not None
            )
            variables = list(program.variables())
            check_listed(program, variables)
        # The slots are listed when the first step has made them.
        self.table = VariableTable(list_state(variables, given_names=program.names()))
        self.board.find_shape = self.table.find_shape
        self._metrics: Mapping[str, Any] = {}
        self._devices = _list_devices(strategy, spec)
        self.handed = Handed(self._devices, self.first_replica)
        self.tapped = tapped and not alone and not program.is_compiled
        self.varies = False
        self.begun: dict[int, dict[str, str]] = {}
        self.shelf: Shelf | None = None
        if self.tapped:
            for optimizer in self.optimizers:
                install_taps(optimizer, self.board, self.table)
            # Never undone: the process runs one subject and ends.
            watch_tapes(self.board, self.table)
            self.handed.watch()

    def look_inside(self) -> None:
        """Record also, under their own names, what losses are computed of."""
        self.board.intermediates = Intermediates(self._devices)

    @contextmanager
    def guard(self, place: str) -> Iterator[None]:
        """Mark what is raised inside as the subject's doing."""
        self.board.forget_failure()
        try:
            yield
        except (BadInputError, SubjectError):
            raise
        except BaseException as error:  # the user's code may leave by sys.exit
            if (bad_input := find_cause(error, BadInputError)) is not None:
                raise bad_input from None
            raise SubjectError(
                self.board.failed_phase or place,
                self.board.failed_replica,
                self.board.failed_by,
                watched=not self.alone,
            ) from error

    def make_step(
        self,
        function: Callable[[Any], Any] | None = None,
        *,
        any_size: bool = False,
    ) -> Step:
        """A step with a trace of its own: what it traced is not shared with another.

        Args:
            function: What each replica runs; by default the program's whole step.
            any_size: Whether to trace it once for batches of all sizes, which a program
                may refuse; it always is where they vary.
        """
        any_size |= self.varies
        return self.program.make_step(self, function, any_size=any_size)

    def watch(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """What a replica runs, with an eye on which replica it is and what it did."""

        def watched(batch: Any) -> Any:
            with self.board.enter_replica(batch), self._give_draws():
                try:
                    result = function(batch)
                except Exception as error:
                    self.board.note_failure(error)
                    raise
                if self.tapped:
                    self.board.tap_unclaimed()
                return result

        hide_from_autograph(watched)
        return watched

    def tap_loss(self, loss: Any) -> tf.Tensor:
        """Record a replica's loss."""
        loss = tf.convert_to_tensor(self.board.take_loss(loss))
        return self.board.tap("loss", "", loss) if self.tapped else loss

    def prepare(self, step: Step, shards: Sequence[Any]) -> tf.Graph:
        """Trace a step without running it, so that every variable exists.

        Slots are created while the first step is traced; their initial values can
        then be read before anything trains.
        """
        with self.guard("first step"):
            graph = step.trace(shards)
            check_optimizers(self.program, self._given)
        self.refresh_state(graph)
        if self.program.acts_between_steps:
            with self.strategy.scope():
                make_slots_ahead(self.optimizers, self.program.variables())
            self.refresh_state(graph)
        with self.guard("first step"):
            check_values(self.table)
        return graph

    def run(self, step: Step, shards: Sequence[Any]) -> None:
        """Run a step; what it raises is the subject's doing."""
        with self.guard("step"):
            step.run(shards)

    def has_replica(self, number: int) -> bool:
        """Whether a replica is one of this task's."""
        is_apart = self.spec.kind == "mwms"
        own = self.spec.replicas_per_worker if is_apart else self.spec.replicas
        return 0 <= number - self.first_replica < own

    def refresh_state(self, graph: tf.Graph) -> None:
        """List the variables anew: the first step may have made some.

        Args:
            graph: The traced step.
        """
        listed, metrics = list(self.program.variables()), self.program.metrics()
        others = (walk_variables(part) for part in (*self.optimizers, *metrics))
        known = list_shards(
            itertools.chain(listed, self.program.bookkeeping(), *others)
        )
        listed += list_unlisted(
            self.program.held_variables(),
            graph,
            known,
            used_between=self.program.acts_between_steps,
        )
        more = name_state(metrics, listed)
        shown = [v for metric in metrics for v in metric.variables if id(v) in more]
        self.table.replace(
            list_state(
                [*listed, *shown],
                self.optimizers,
                self.board.variables | self.handed.variables,
                find_counter,
                given_names={**more, **self.program.names()},
            )
        )
        named = name_metrics(metrics)
        self._metrics = {
            name: metric
            for name, metric in named.items()
            if all(map(self.table.has, metric.variables))
        }

    def begin_step(self, step: int) -> None:
        """Let the program do what it does between two steps, in every process."""
        with (
            self.guard("before_step"),
            self.board.leave_step(),
            self.strategy.scope(),
        ):
            self.program.before_step(step)
        if self.program.acts_between_steps:
            self.begun[step] = digest_state(self.table)
        if self._draws is not None:
            self._draws.tell_step(step)

    def begin_run(self, shards: Sequence[Any]) -> None:
        """What every way to run a step does first, on a shard for each replica."""
        if self._draws is not None:
            self._draws.tell_examples(shards)

    @property
    def gives_draws(self) -> bool:
        """Whether steps are given the random numbers that they draw."""
        return self._draws is not None

    @contextmanager
    def draw_beyond(self, steps: int) -> Iterator[None]:
        """Give steps inside the random numbers of so many steps later."""
        if self._draws is None:
            yield
            return
        self._draws.beyond = steps
        try:
            yield
        finally:
            self._draws.beyond = 0

    def _give_draws(self) -> AbstractContextManager[None]:
        return nullcontext() if self._draws is None else self._draws.enter()

    def distribute(self, shards: Sequence[Any]) -> Any:
        """Hand each replica its shard (by global replica number)."""
        if self.spec.kind in ("one", "ps"):
            return tf.nest.map_structure(tf.constant, shards[0])

        def pick(context: Any) -> Any:
            shard = shards[int(context.replica_id_in_sync_group)]
            return tf.nest.map_structure(tf.constant, shard)

        return self.strategy.experimental_distribute_values_from_function(pick)

    def read_state(self, paths: Collection[str] | None = None) -> State:
        """Every variable of the subject that this task can see, or some of them."""
        state = read_state(self.table, paths)
        check_shapes(self.table, state)
        return state

    def write_state(self, values: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Set variables on every replica of this task; others are left alone.

        So are those of another shape: one device has nothing in their place.
        """
        for variable in self.table.state:
            value = values.get(variable.info.path)
            if value is not None and value.shape == variable.info.shape:
                for component in variable.components:
                    write_component(component, value)

    def restore_state(self, state: State) -> None:
        """Set every component to what `read_state` returned."""
        for variable in self.table.state:
            for number, component in enumerate(variable.components):
                write_component(component, state[variable.info.path, number])

    @property
    def variables(self) -> tuple[VariableInfo, ...]:
        """What is known of each variable, in the table's order."""
        return tuple(variable.info for variable in self.table.state)

    @property
    def metrics(self) -> tuple[MetricInfo, ...]:
        """What the program shows besides its loss."""
        return tuple(
            MetricInfo(
                name=name,
                state=tuple(self.table.find_path(v) for v in metric.variables),
            )
            for name, metric in self._metrics.items()
        )

    def make_values(self) -> Values[Any]:
        """An empty record, of which no large array stays in memory."""
        return Values(shelf=self.shelf)

    def collect_results(self, step: int, state: State, values: Recorded) -> None:
        """Add to a trace what the metrics show after a step.

        Args:
            step: Its number.
            state: What the step left. A user's metric may forget what it is asked for,
                so what becomes of its state by that is undone.
            values: Where to.
        """
        with self.strategy.scope():
            for name, metric in self._metrics.items():
                result = read_result(metric)
                if result is not None:
                    key = TraceKey(step=step, phase="loss", variable=name)
                    values[key] = result
        kept = {path for metric in self.metrics for path in metric.state}
        now = self.read_state(kept)
        if any(not are_equal(now[key], state[key]) for key in now):
            self.restore_state(state)

    def collect_taps(
        self,
        step: int,
        values: Recorded,
        *,
        replica: int | None = None,
        phases: Collection[Phase] = PHASES,
    ) -> None:
        """Add to a trace what the taps saw in the step that ran last.

        Args:
            step: Its number.
            values: Where to.
            replica: Of whom one device computed it; by default who did.
            phases: What to add.
        """
        collect_taps(self.board, step, values, replica=replica, phases=phases)

    def collect_state(
        self,
        step: int,
        state: State,
        values: Recorded,
        *,
        replica: int | None = None,
    ) -> None:
        """Add a state to a trace, as that after a step; see `collect_taps`."""
        collect_state(
            self.table,
            step,
            state,
            values,
            first_replica=self.first_replica,
            replica=replica,
        )


def _list_devices(
    strategy: tf.distribute.Strategy, spec: ClusterSpec
) -> tuple[str, ...]:
    """Devices of this task's replicas, where it traces them together."""
    is_apart = spec.kind in ("one", "ps")
    return () if is_apart else tuple(strategy.extended.worker_devices)
