"""The stock optimizers and their options, found by looking at what is installed.

Nobody lists them: every public class of a family's namespace is constructed, in a task
of its own, with its defaults and with each set of options that it takes.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

NAMESPACES = {
    "legacy": "tf_keras.optimizers.legacy",
    "keras2": "tf_keras.optimizers",
    "keras3": "keras.optimizers",
    "v1": "tensorflow.compat.v1.train",
}
"""Where the public classes of each family are."""

SCALES = {
    "legacy": "tf_keras.mixed_precision.LossScaleOptimizer",
    "keras2": "tf_keras.mixed_precision.LossScaleOptimizer",
    "keras3": "keras.optimizers.LossScaleOptimizer",
}
"""The loss scale around an optimizer of each family."""

CLUSTERS = ("mirrored:2", "mwms:2", "central:2", "ps:2+1")
"""On which the families, and all of their optimizers, are checked."""

DEFAULT, SCALE = "default", "loss scale"
REQUIRED = {"learning_rate": 0.125, "momentum": 0.5}
"""Values of the arguments that TensorFlow 1 gives no default."""

# Clips stand below the norms of the workloads' gradients, so that they act; fractions
# are dyadic, so that they leave the exact tier possible.
OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "momentum": ({"momentum": 0.5},),
    "nesterov": (
        {"momentum": 0.5, "nesterov": True},
        {"momentum": 0.5, "use_nesterov": True},
    ),
    "amsgrad": ({"amsgrad": True},),
    "centered": ({"centered": True},),
    "weight_decay": ({"weight_decay": 0.125},),
    "use_ema": ({"use_ema": True, "ema_momentum": 0.5},),
    "ema_overwrite_frequency": (
        {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2},
    ),
    "clipvalue": ({"clipvalue": 0.125},),
    "clipnorm": ({"clipnorm": 0.125},),
    "global_clipnorm": ({"global_clipnorm": 0.125},),
    "gradient_accumulation_steps": ({"gradient_accumulation_steps": 2},),
    "exclude_embeddings": ({"exclude_embeddings": False},),
}
"""By name, the ways in which the families spell the option's arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """A stock optimizer with options: a factory, and a case of the battery.

    Attributes:
        family: Key of `NAMESPACES`.
        name: Name of the class.
        option: `default`, `loss scale` or a key of `OPTIONS`.
        arguments: What it is constructed with.
        paths: The aggregation paths that its family has.
    """

    family: str
    name: str
    option: str = DEFAULT
    arguments: Mapping[str, Any] = field(default_factory=dict)
    paths: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Reads like `keras3/Adam/amsgrad`."""
        return f"{self.family}/{self.name}/{self.option}"

    def __call__(self) -> Any:
        """Make the optimizer."""
        made = find_name(f"{NAMESPACES[self.family]}.{self.name}")(**self.arguments)
        return find_name(SCALES[self.family])(made) if self.option == SCALE else made


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A public class that is no case, and why."""

    family: str
    name: str
    reason: str


def find_name(name: str) -> Any:
    """The object of a dotted name; what looks like a module may be an attribute."""
    package, *parts = name.split(".")
    value = importlib.import_module(package)
    for part in parts:
        value = getattr(value, part)
    return value


def list_stock() -> tuple[tuple[Stock, ...], tuple[LeftOut, ...]]:
    """Every stock optimizer with its options, and the classes that are left out.

    Imports TensorFlow and Keras: to be run in a task.
    """
    cases: list[Stock] = []
    left_out: list[LeftOut] = []
    for family, namespace in NAMESPACES.items():
        known: dict[type, str] = {}
        for name, kind in _list_classes(namespace):
            if kind in known:
                reason = f"another name of {known[kind]}"
                left_out.append(LeftOut(family=family, name=name, reason=reason))
                continue
            known[kind] = name
            try:
                plain = _construct(family, name, kind)
            except (TypeError, ValueError, NotImplementedError, RuntimeError) as error:
                reason = str(error).splitlines()[0]
                left_out.append(LeftOut(family=family, name=name, reason=reason))
            else:
                cases += [plain, *_list_options(plain)]
    return tuple(cases), tuple(left_out)


def _list_classes(namespace: str) -> Iterator[tuple[str, type]]:
    module = find_name(namespace)
    for name in sorted(dir(module)):
        kind = getattr(module, name)
        if isinstance(kind, type) and issubclass(kind, module.Optimizer):
            yield name, kind


def _construct(family: str, name: str, kind: type) -> Stock:
    """The case of a class as it is; raises what its constructor does."""
    from distbench.worker.families import find_family

    parameters = inspect.signature(kind).parameters.values()
    needed = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    if unknown := [name for name in needed if name not in REQUIRED]:
        raise TypeError(f"needs {', '.join(unknown)}")
    arguments = {name: REQUIRED[name] for name in needed}
    paths = find_family(kind(**arguments)).paths
    return Stock(family=family, name=name, arguments=arguments, paths=paths)


def _list_options(plain: Stock) -> Iterator[Stock]:
    for option, spellings in OPTIONS.items():
        for added in spellings:
            arguments = {**plain.arguments, **added}
            case = Stock(
                family=plain.family,
                name=plain.name,
                option=option,
                arguments=arguments,
                paths=plain.paths,
            )
            if arguments != plain.arguments and _is_taken(case):
                yield case
                break
    if plain.family in SCALES:
        yield Stock(
            family=plain.family,
            name=plain.name,
            option=SCALE,
            arguments=plain.arguments,
            paths=plain.paths,
        )


def _is_taken(case: Stock) -> bool:
    """Whether the class knows the options, and does not leave them lying about."""
    try:
        case()
    except (TypeError, ValueError):
        return False
    return True
