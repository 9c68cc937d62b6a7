"""One subject, built once in this task, run step by step with taps on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import tensorflow as tf

from distbench.cluster import ClusterSpec, Task
from distbench.errors import BadInputError
from distbench.trace.shelf import Shelf
from distbench.worker.families import find_optimizers, install_taps
from distbench.worker.families.settings import read_settings
from distbench.worker.process.failures import SubjectError, find_cause
from distbench.worker.process.intercept import hide_from_autograph
from distbench.worker.process.unsharded import number_worker
from distbench.worker.state.graphs import calls_python
from distbench.worker.state.variables import VariableTable, list_state
from distbench.worker.stepping.kept_state import KeptState
from distbench.worker.stepping.program import Program
from distbench.worker.stepping.refused import (
    check_listed,
    check_optimizers,
    check_values,
)
from distbench.worker.stepping.slots_ahead import make_slots_ahead
from distbench.worker.stepping.steps import Step
from distbench.worker.taps.board import TapBoard
from distbench.worker.taps.collect import (
    sketch_state,
)
from distbench.worker.taps.given_draws import Draws, GivenDraws, OwnDraws
from distbench.worker.taps.intermediates import Intermediates
from distbench.worker.taps.spoilt import Spoilt
from distbench.worker.taps.tapes import watch_tapes


class Session(KeptState):
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
        weight: What gradients are multiplied by as tapes give them.

    Attributes:
        varies: Whether batches have several sizes. A step is then traced once for all
            of them, as over a pipeline: a worker that traced anew for its own sizes
            would wait in other collectives than those whose shards stay as they are.
        shelf: Where large arrays of what is recorded are put; None keeps them.
        settings: What the optimizers are configured with.
        step: Number of the step that was begun last.
        taken_by: By step, the worker that a coordinator had take it last.
        begun: By step, a sketch of the state in which it began last; of a
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
        weight: float = 1.0,
    ) -> None:
        self.alone = alone
        self.program = program
        self.strategy = strategy
        self.spec = spec
        is_server = spec.traits.scheduled
        self.first_replica = (
            task.index * spec.replicas_per_worker if spec.traits.collective else 0
        )
        device = "/job:chief/device:CPU:0" if is_server else "/device:CPU:0"
        self.board = TapBoard(first_replica=self.first_replica, device=device)
        self.board.weight = weight
        self.draws: Draws = OwnDraws()
        self.tapped = False
        self.step = 0
        self.taken_by: dict[int, int] = {}
        self._devices = _list_devices(strategy, spec)
        with self.guard("build"), strategy.scope():
            program.build(strategy)
        with self.guard("first step"):
            program.make_variables(self)
        with self.guard("build"), strategy.scope():
            self._given = list(program.optimizers())
            self.optimizers = find_optimizers(self._given)
            # Before anything is traced: what moves then is no setting.
            self.settings = {} if alone else read_settings(self.optimizers)
            variables = list(program.variables())
            check_listed(program, variables)
        if gives_draws:
            self.draws = GivenDraws(
                [r for r in range(spec.replicas) if self.has_replica(r)],
                self.board.find_replica,
                lambda: [variable.info.shape for variable in self.table.state],
                device,
            )
        # The slots are listed when the first step has made them.
        self.table = VariableTable(list_state(variables, given_names=program.names()))
        self.board.find_shape = self.table.find_shape
        self._metrics: Mapping[str, Any] = {}
        self._is_unread = False
        self.spoilt = Spoilt(self._devices, self.first_replica)
        self.tapped = tapped and not alone and not program.is_compiled
        if weight != 1 and not self.tapped and not alone:
            raise BadInputError(
                f"What the tapes of '{program.name}' give cannot be multiplied: they "
                "are not seen where XLA compiles a step as a whole or steps are in "
                f"flight. Expected a loss weight of 1. Received: {weight:g}."
            )
        self.varies = False
        self.begun: dict[int, dict[str, tuple[float, float]]] = {}
        self.shelf: Shelf | None = None
        if self.tapped:
            for optimizer in self.optimizers:
                install_taps(optimizer, self.board, self.table)
            # Never undone: the process runs one subject and ends.
            watch_tapes(self.board, self.table)
            self.board.loops.watch()
            self.spoilt.watch()

    def look_inside(self, *, of_steps: bool) -> None:
        """Record also, under their own names, what losses are computed of.

        Args:
            of_steps: Whether what moves variables as well.
        """
        self.board.loops.unrolls = True
        self.board.intermediates = Intermediates(self._devices, of_steps=of_steps)

    def look_away(self) -> None:
        """Record that no more of steps that are traced from now on."""
        self.board.loops.unrolls = False
        self.board.intermediates = None

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
            self.board.locate_failure(error, self._devices)
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
            self.board.begin_replica(batch)
            with self.draws.enter(batch), number_worker():
                try:
                    result = function(batch)
                except Exception as error:
                    self.board.note_failure(error)
                    raise
                if self.tapped:
                    self.board.tap_unclaimed()
                    self.board.look_at_step(self.table)
                return result

        hide_from_autograph(watched)
        return watched

    def tap_loss(self, loss: Any) -> tf.Tensor:
        """Record a replica's loss."""
        loss = tf.convert_to_tensor(self.board.take_loss(loss))
        return self.board.tap("loss", "", loss) if self.tapped else loss

    def rehearse(self, shards: Sequence[Any]) -> None:
        """Trace a step that is given its random numbers for twice the examples.

        So it shows which axes of what it draws are those of examples, where it is not
        traced for batches of any size anyway. What it cannot do at that size tells
        nothing.
        """
        if not self.draws.are_given or self.varies:
            return
        twice = [
            tf.nest.map_structure(lambda rows: np.concatenate([rows, rows]), shard)
            for shard in shards
        ]
        with suppress(Exception):
            self.make_step().trace(twice)

    def prepare(self, step: Step, shards: Sequence[Any]) -> tf.Graph:
        """Trace a step without running it, so that every variable exists.

        Slots are created while the first step is traced; their initial values can
        then be read before anything trains.
        """
        with self.guard("first step"):
            graph = step.trace(shards)
            check_optimizers(self.program, self._given)
        self.program.calls_python = calls_python(graph)
        listed = self._refresh_listed(graph)
        if self.program.acts_between_steps:
            with self.strategy.scope():
                make_slots_ahead(self.optimizers, listed)
            self._refresh_listed(graph)
        with self.guard("first step"):
            check_values(self.table)
        return graph

    def _refresh_listed(self, graph: tf.Graph) -> Sequence[Any]:
        """List the variables anew; returns those that the program lists itself."""
        with self.guard("first step"):
            listed, metrics = list(self.program.variables()), self.program.metrics()
        self.refresh_state(graph, listed, metrics)
        return listed

    def run(self, step: Step, shards: Sequence[Any]) -> None:
        """Run a step; what it raises is the subject's doing."""
        self._is_unread = True
        with self.guard("step"):
            step.run(shards)

    def has_replica(self, number: int) -> bool:
        """Whether a replica is one of this task's."""
        return 0 <= number - self.first_replica < self.spec.replicas_per_worker

    def begin_step(self, step: int) -> None:
        """Let the program do what it does between two steps, in every process."""
        self.step = step
        with (
            self.guard("before_step"),
            self.board.leave_step(),
            self.strategy.scope(),
        ):
            self.program.before_step(step)
        if self.program.acts_between_steps:
            self.begun[step] = sketch_state(self.table)
        self.draws.tell_step(step)

    @property
    def traced_for(self) -> int:
        """How many replicas this task traces a step for."""
        return max(1, len(self._devices))

    def distribute(self, shards: Sequence[Any]) -> Any:
        """Hand each replica its shard (by global replica number)."""
        if not self.spec.traits.joint:
            return tf.nest.map_structure(tf.constant, shards[0])

        def pick(context: Any) -> Any:
            shard = shards[int(context.replica_id_in_sync_group)]
            return tf.nest.map_structure(tf.constant, shard)

        return self.strategy.experimental_distribute_values_from_function(pick)


def _list_devices(
    strategy: tf.distribute.Strategy, spec: ClusterSpec
) -> tuple[str, ...]:
    """Devices of this task's replicas, where it traces them together."""
    return tuple(strategy.extended.worker_devices) if spec.traits.joint else ()
