"""A compiled Keras model, trained by Keras' own `fit`.

Keras makes the shards itself: consecutive ones of equal size, the last ones smaller
where the batch cannot be divided. A call of `fit` on the global batch of a step is one
step: its train function is traced once and kept by the model from call to call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError, count_things
from distbench.scenario import Scenario
from distbench.worker.families import describe_control, name_family
from distbench.worker.families.controls import make_control
from distbench.worker.process.intercept import call_converted, intercept
from distbench.worker.state.components import is_variable
from distbench.worker.state.metrics import is_metric
from distbench.worker.state.reachable import find_held, get_attributes
from distbench.worker.stepping.program import (
    LossReduction,
    Program,
    count_batch,
    name_subject,
)
from distbench.worker.stepping.steps import Step
from distbench.worker.subjects.arguments import check_data
from distbench.worker.subjects.batches import Batches
from distbench.worker.subjects.built_late import (
    build_as_shared,
    build_by_step,
    is_built,
    is_shared,
)
from distbench.worker.subjects.fit_steps import make_fit_step, name_keras
from distbench.worker.subjects.model_controls import (
    RebuiltModel,
    SmallModel,
    describe_model,
    is_own,
    keeps_statistics,
)
from distbench.worker.taps.reach import is_in_reach

if TYPE_CHECKING:
    from distbench.worker.stepping.session import Session


class KerasModelProgram(Program):
    """A callable that returns a compiled model, with `data(step)` beside it.

    Args:
        factory: The callable.
        data: The global batch of a step: what `fit` takes, as arrays.
        scenario: What the model is trained for.
    """

    resets = True

    def __init__(self, factory: Any, data: Any, scenario: Scenario) -> None:
        self.name = name_subject(factory)
        self._factory = factory
        check_data(data, self.name)
        self._batches = Batches(data, self.name)
        self._steps = scenario.batches
        self._even = (
            0 if scenario.split else ClusterSpec.parse(scenario.cluster).replicas
        )
        # With a GPU Keras 3 compiles by default; the reference has none, and must not
        # be another step.
        self._may_compile = scenario.jit is not False and scenario.spec.device != "gpu"
        self._model: Any = None
        self._is_watched = False
        self._is_masked = False
        self._has_scalar_loss = False
        self._keras_divides = False
        self._is_reported = False
        self._told: Counter[int] = Counter()

    def build(self, strategy: tf.distribute.Strategy) -> None:  # noqa: ARG002  # its scope is entered
        """Have the model made, and what `fit` makes before its first trace."""
        self._model = model = self._make_model()
        self.is_compiled = bool(model.jit_compile)
        if _is_symbolic(model) and (is_built(model) or is_shared(model)):
            model._symbolic_build(data_batch=self.data(0))

    def _make_model(self) -> Any:
        model = self._factory()
        check_model(model, self.name)
        if not self._may_compile:
            model.jit_compile = False
        return model

    def make_variables(self, session: Session) -> None:
        """Trace the step once, where it builds layers that nothing else has built."""
        batch = self.data(0)
        if not is_built(self._model):
            is_known = _is_symbolic(self._model) and not is_shared(self._model)
            if not (is_known and build_as_shared(session, self._model, batch)):
                if is_known:
                    # What was tried has built a part of the other one.
                    self._model = self._make_model()
                build_by_step(session, self._model, batch)
        if _is_symbolic(self._model):
            if not self._model.optimizer.built:
                # So it is where replicas share the model, whether it trains or not.
                self._model.optimizer.build(self._model.trainable_variables)
            if not session.alone:
                self._watch_losses()
        for optimizer in self.optimizers():
            if hasattr(optimizer, "finalize_variable_values"):
                # The end of a `fit` is not the end of the run.
                intercept(optimizer, "finalize_variable_values", _skip)

    def make_step(
        self,
        session: Session,
        function: Callable[[Any], Any] | None = None,  # noqa: ARG002  # no part of it
        *,
        any_size: bool = False,  # noqa: ARG002  # neither has that
    ) -> Step:
        """See `Program`; Keras decides what a replica runs."""
        if not self._is_watched and session.tapped:
            intercept(self._model, "train_step", partial(self._take_step, session))
            intercept(self._model, "compute_loss", partial(self._tell_loss, session))
            self._is_watched = True
        return make_fit_step(session, self._model)

    def reset(self) -> None:
        """What `fit` does before an epoch, and so before each step; see `Program`."""
        self._model.reset_metrics()

    def _take_step(self, session: Session, original: Any, data: Any) -> Any:
        replica = session.board.find_replica()
        self._told[replica], self._is_reported = 0, False
        logs = session.watch(partial(call_converted, original))(data)
        told = self._told[replica]
        loss = self._find_loss(session, logs, is_told=bool(told))
        if told > 1 or (told and loss is not None):
            # Of micro-steps or several networks no single one is the replica's loss.
            session.board.clear_loss()
        if told < 2 and loss is not None:
            session.tap_loss(loss)
        return logs

    def _tell_loss(
        self, session: Session, original: Any, *args: Any, **kwargs: Any
    ) -> Any:
        self._note_mask(args, kwargs)
        self._keras_divides |= is_own(type(self._model).compute_loss.__module__)
        loss = call_converted(original, *args, **kwargs)
        if loss is not None:
            self._told[session.board.find_replica()] += 1
            # A tape differentiates the sum of what has dimensions.
            session.tap_loss(tf.reduce_sum(loss))
        return loss

    def _note_mask(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """See whether Keras' own reduction of its own losses gets to know of a mask."""
        told = tf.nest.flatten([*args, *kwargs.values()])
        self._is_masked |= _has_own_loss(self._model) and any(
            getattr(tensor, "_keras_mask", None) is not None for tensor in told
        )

    def _watch_losses(self) -> None:
        """Look at what losses of Keras 3 give before they are reduced."""
        compiled = getattr(self._model, "_compile_loss", None)
        for place in getattr(compiled, "_flat_losses", None) or ():
            intercept(place.loss, "call", self._note_rank)

    def _note_rank(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        values = call_converted(original, *args, **kwargs)
        self._keras_divides = True
        own = is_own(type(self._model).compute_loss.__module__)
        # Of a loss that is a constant Keras takes Python's number as well.
        rank = tf.TensorShape(getattr(values, "shape", ())).rank
        self._has_scalar_loss |= own and rank == 0
        return values

    def _makes_own_loss(self) -> bool:
        """Whether the user's own step divides the loss, and Keras does not."""
        of_keras2 = getattr(getattr(self._model, "compiled_loss", None), "_built", None)
        return self._is_watched and not (self._keras_divides or of_keras2)

    @property
    def loss_reduction(self) -> LossReduction:  # type: ignore[override]
        """Keras divides by the replicas what a loss sums to, or averages over.

        Of a loss that the step makes by itself nobody says how it combines.
        """
        return None if self._makes_own_loss() else "sum"

    @property
    def differentiated(self) -> bool:  # type: ignore[override]
        """See `Program`; a step may have several tapes, or none, and report a loss."""
        return self._makes_own_loss() and not self._is_reported

    def _find_loss(self, session: Session, logs: Any, *, is_told: bool) -> Any:
        """What a step differentiates; of several things none is the replica's loss.

        A `compute_loss` of the user's own tells what is reported: that may be a
        multiple of what is differentiated, or a loss of another kind. What Keras' own
        told stands.
        """
        targets = session.board.list_targets()
        if len(targets) > 1 or (is_told and not self._makes_own_loss()):
            return None
        numbers = [t for t in targets if tf.is_tensor(t) and t.shape.rank == 0]
        if is_told:
            return next(filter(is_in_reach, numbers), None)
        reported = logs.get("loss") if isinstance(logs, dict) else None
        self._is_reported = not numbers
        loss = numbers[0] if numbers else reported
        if loss is None:
            raise BadInputError(
                f"train_step of model '{self.name}' shows no loss: it neither calls "
                "compute_loss nor differentiates with a tape. Return it from "
                "train_step as 'loss'."
            )
        return loss

    def variables(self) -> Sequence[Any]:
        """Variables of the layers, then those of metrics, which are made late."""
        kept = self._model.variables
        metrics = [v for metric in self._model.metrics for v in metric.variables]
        return list({id(v): v for v in [*kept, *metrics]}.values())

    def bookkeeping(self) -> Sequence[Any]:
        """See `Program`: Keras 2 names what a model has that is no part of it."""
        names = getattr(type(self._model), "_TF_MODULE_IGNORED_PROPERTIES", ())
        held = get_attributes(self._model)
        return [held[name] for name in names if is_variable(held.get(name))]

    def names(self) -> Mapping[int, str]:
        """Names of the metrics' variables: `total` alone would not tell which."""
        return {
            id(v): f"{metric.name}/{v.name.split(':')[0]}"
            for metric in self._model.metrics
            for v in metric.variables
        }

    def root(self) -> Any:
        """The model."""
        return self._model

    def metrics(self) -> Sequence[Any]:
        """The model's, those that another one holds too."""
        return find_held(list(self._model.metrics), is_metric)

    def optimizers(self) -> Sequence[Any]:
        """The compiled one, and others that the model holds, in a list maybe."""
        held = [v for value in vars(self._model).values() for v in _list_items(value)]
        held = [v for v in held if name_family(v) is not None]
        found = [self._model.optimizer, *held]
        return list({id(optimizer): optimizer for optimizer in found}.values())

    def data(self, step: int) -> Any:
        """The user's global batch, cut to a multiple of the replicas."""
        batch = _make_tuples(self._batches.get(step))
        examples = count_batch(batch)
        kept = examples - self.count_left_out(step)
        if not kept:
            raise BadInputError(
                f"data({step}) of '{self.name}' must return at least one example per "
                f"replica. Expected: {self._even} or more. Received: {examples}. Where "
                "a split is asked for, a replica may get none."
            )
        return tf.nest.map_structure(lambda array: array[:kept], batch)

    def count_left_out(self, step: int) -> int:
        """See `Program`."""
        return count_batch(self._batches.get(step)) % self._even if self._even else 0

    def make_checkpoint(self) -> tf.train.Checkpoint:
        """The model, which holds its optimizers."""
        return tf.train.Checkpoint(model=self._model)

    def split(
        self, scenario: Scenario, replicas: int, step: int = 0
    ) -> tuple[int, ...]:
        """What `experimental_distribute_dataset` makes of a batch."""
        examples = count_batch(self.data(step))
        each = -(-examples // replicas)
        shards = tuple(
            min(each, max(0, examples - replica * each)) for replica in range(replicas)
        )
        if not step and scenario.split not in ((), shards):
            raise BadInputError(
                f"Scenario '{scenario.id}': Keras splits "
                f"{count_things(examples, 'example')} over "
                f"{count_things(replicas, 'replica')} itself. Expected the split "
                f"{shards}. Received: {scenario.split}."
            )
        return shards

    def make_control(
        self, optimizers: Sequence[Any], *, keeps_descent: bool = False
    ) -> Any:
        """A stock model with a stock optimizer of the same family."""
        model, keras = self._model, name_keras(self._model) or ""
        make = partial(
            make_control, *describe_control(optimizers[0], keeps_descent=keeps_descent)
        )
        batches = [self.data(step) for step in range(self._steps)]
        described = describe_model(model, keras, batches)
        if described is not None:
            return RebuiltModel(
                keras=keras, described=described, batches=batches, make_optimizer=make
            )
        return SmallModel(
            keras=keras,
            make_optimizer=make,
            examples=[count_batch(batch) for batch in batches],
            normalised=keeps_statistics(model),
            masked=self._is_masked,
            scalar=self._has_scalar_loss,
            steps_itself=self._makes_own_loss(),
            compiled=self.is_compiled,
            at_once=int(getattr(model, "steps_per_execution", None) or 1),
        )


def _list_items(value: Any) -> list[Any]:
    """What a list or a mapping holds; anything else is itself."""
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple)) else [value]


def check_model(model: Any, name: str) -> None:
    """Refuse what cannot be trained by `fit`, or not be observed.

    Raises:
        BadInputError: It is no compiled model, or runs eagerly.
    """
    if name_keras(model) is None:
        raise BadInputError(
            f"'{name}' returned no Keras model. Received: an object of type "
            f"'{type(model).__name__}'."
        )
    if getattr(model, "optimizer", None) is None:
        raise BadInputError(
            f"'{name}' returned a model that is not compiled with an optimizer. "
            "Expected: a model after compile(optimizer, loss)."
        )
    if model.run_eagerly:
        raise BadInputError(
            f"'{name}' returned a model with run_eagerly=True. Expected: one whose "
            "step is traced, which is what trains on a cluster. Leave the option out."
        )


def _is_symbolic(model: Any) -> bool:
    """Whether Keras can build a model without a step: Keras 3 does."""
    return name_keras(model) == "keras"


def _has_own_loss(model: Any) -> bool:
    """Whether Keras' own losses and reductions alone make up a model's loss."""
    losses = [loss for loss in tf.nest.flatten(model.loss) if not isinstance(loss, str)]
    makers = [type(model).compute_loss, *losses]
    return all(is_own(maker.__module__) for maker in makers if maker is not None)


def _skip(original: Any, *args: Any, **kwargs: Any) -> None:
    """Do nothing in the place of a method."""


def _make_tuples(batch: Any) -> Any:
    """Tuples in the place of lists, which a dataset would stack."""
    if isinstance(batch, (list, tuple)):
        return tuple(_make_tuples(part) for part in batch)
    return batch
