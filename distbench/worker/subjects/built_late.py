"""How a compiled Keras model comes by its variables: as `fit` makes them.

Keras 2 builds what is not built by the first trace of the step, in a replica. So does
Keras 3 on one device; for replicas it calls the model with a batch before, without
running anything.

A model may have no `call`, or one that takes what `train_step` makes of the data, or
one that only a replica can run: so the bench calls none.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from distbench.worker.process.intercept import call_converted, intercept
from distbench.worker.subjects.fit_steps import make_fit_step

if TYPE_CHECKING:
    from distbench.worker.stepping.session import Session


def is_built(model: Any) -> bool:
    """Whether all layers of a model have their variables."""
    return all(layer.built for layer in model._flatten_layers())


def is_shared(model: Any) -> bool:
    """Whether a model of Keras 3 is one that `fit` builds for replicas."""
    return model._distribute_strategy is not None


def build_by_step(session: Session, model: Any, batch: Any) -> None:
    """Trace a model's step without running it, and with no tap in it.

    Args:
        session: Where it is to run.
        model: What it builds.
        batch: What `fit` would take.
    """
    undo = intercept(model, "train_step", partial(_watch_failures, session))
    try:
        make_fit_step(session, model, at_once=False).trace([batch])
    finally:
        undo()


def build_as_shared(session: Session, model: Any, batch: Any) -> bool:
    """Build a model of Keras 3 on one device as for replicas, if its step takes that.

    Keras names a variable by the layers in whose call it is made, so only then has it
    the same name on one device and on a cluster.

    Args:
        session: Where its step is to run.
        model: What to build; where this gives False, it may be built in part.
        batch: What `fit` would take.
    """
    try:
        model._symbolic_build(data_batch=batch)
        build_by_step(session, model, batch)
    except Exception:  # noqa: BLE001  # whatever it is, `fit` builds by the step alone
        return False
    return True


def _watch_failures(session: Session, original: Any, data: Any) -> Any:
    """Take a step as it is, and note which replica's code raises."""
    return session.watch(partial(call_converted, original))(data)
