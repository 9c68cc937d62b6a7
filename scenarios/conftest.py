"""What `pytest scenarios/` takes on its command line, and how a scenario is made.

A test asks for scenarios with the marker `scenarios(workloads=..., optimizers=...,
clusters=..., paths=...)`: it runs for each element of the product, with an id such as
`mlp-adam-mwms:2-aggregator`. `--optimizer` and `--clusters` replace those of every
test; `kinds=...` limits a test to some kinds of clusters whatever was asked for.

Programs of `scenarios/programs` bring optimizers of their own: the marker
`programs(file, name, ..., clusters=..., kinds=...)` runs a test for each name and
cluster, and for none where `--optimizer` asks for another.
"""

from __future__ import annotations

import itertools
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from distbench.checking.plan import name_cluster
from distbench.cluster import ALL, ClusterSpec
from distbench.errors import BadInputError
from distbench.machine import Machine, inspect_machine
from distbench.options import CheckOptions
from distbench.spelling import spell_options, spelled
from distbench.target import parse_target

if TYPE_CHECKING:
    from distbench.verdict import Finding, Verdict

_HERE = Path(__file__).parent
_TOGETHER = pytest.StashKey[dict[object, list[str]]]()
_KNOWN = pytest.StashKey[dict[object, "Verdict"]]()
OPTIMIZERS = {
    "sgd": "sgd.py:make_sgd",
    "momentum": "momentum.py:make_momentum",
    "adam": "adam.py:make_adam",
    "adamw": "adamw.py:make_adamw",
    "averaged_sgd": "averaged_sgd.py:make_averaged_sgd",
    "lazy_adam": "lazy_adam.py:make_lazy_adam",
    "legacy_adam": "families.py:make_legacy_adam",
    "legacy_momentum": "families.py:make_legacy_momentum",
    "keras2_adamw": "families.py:make_keras2_adamw",
    "keras2_rmsprop": "families.py:make_keras2_rmsprop",
    "keras3_adam": "families.py:make_keras3_adam",
    "keras3_momentum": "families.py:make_keras3_momentum",
    "v1_adam": "families.py:make_v1_adam",
    "v1_momentum": "families.py:make_v1_momentum",
}
"""Optimizers that the scenarios ship with, custom and stock, by the name in an id."""

CLUSTERS = ("mirrored:2", "mwms:2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One element of a test's product."""

    workload: str | None
    optimizer: str
    target: str
    cluster: str
    path: str = "default"

    @property
    def id(self) -> str:
        """Reads like `mlp-adam-mwms:2-aggregator`, of a program `TapedLoss-mwms:2`."""
        if self.workload is None:
            return f"{self.optimizer}-{self.cluster}"
        return f"{self.workload}-{self.optimizer}-{self.cluster}-{self.path}"


def _read_given(text: str) -> str:
    """A value from the command line: of an empty one nothing would be asked for."""
    if not text.strip():
        raise ArgumentTypeError(
            "it is empty, as from a variable of the shell that is not set. Leave it "
            "out, or give it a value"
        )
    return text


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("scenarios")
    group.addoption(
        "--optimizer",
        type=_read_given,
        metavar="TARGET",
        help="run the scenarios with this optimizer factory: package.module:attribute "
        "or path/to/file.py:attribute",
    )
    group.addoption(
        "--clusters",
        type=_read_given,
        metavar="SPEC,...",
        help="run the scenarios on these clusters, e.g. mirrored:4,mwms:2,ps:2+1",
    )
    group.addoption(
        "--one-cluster",
        action="store_true",
        help="run each scenario on one of its clusters, the next one's on the next",
    )
    group.addoption(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="of the scenarios of each file run the first, and every Nth after it",
    )
    group.addoption(
        "--require-gpus",
        type=int,
        default=0,
        metavar="N",
        help="scenarios that lack GPUs fail instead of being skipped, and none takes "
        "CPUs where it would have GPUs with N of them",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "scenarios(workloads, optimizers, clusters, paths, kinds): runs for each "
        "element of the product",
    )
    config.addinivalue_line(
        "markers",
        "programs(file, *names, clusters, kinds): runs for each name and cluster",
    )
    try:
        if config.getoption("every") < 1:
            raise pytest.UsageError(
                "--every takes a whole number from 1. "
                f"Received: {config.getoption('every')}."
            )
        with spelled(spell_options({})):
            CheckOptions(require_gpus=config.getoption("require_gpus"))
        _list_clusters(config, ())
        if target := config.getoption("optimizer"):
            parse_target(target, config.invocation_params.dir)
    except BadInputError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name, list_cases in (("scenarios", _list_cases), ("programs", _list_programs)):
        marker = metafunc.definition.get_closest_marker(name)
        if marker is not None:
            cases = list_cases(metafunc.config, *marker.args, **marker.kwargs)
            if metafunc.config.getoption("one_cluster"):
                cases = _take_one_cluster(cases)
            metafunc.parametrize("case", cases, ids=[case.id for case in cases])


def _list_cases(
    config: pytest.Config,
    *,
    workloads: Sequence[str],
    optimizers: Sequence[str] = ("adam",),
    clusters: Sequence[str] = CLUSTERS,
    paths: Sequence[str] = ("default",),
    kinds: Sequence[str] = ("one", "mirrored", "mwms", "central", "ps"),
) -> list[Case]:
    if target := config.getoption("optimizer"):
        targets = {target.rpartition(":")[2].removeprefix("make_"): target}
    else:
        targets = {
            name: str(_HERE / "optimizers" / OPTIMIZERS[name]) for name in optimizers
        }
    return [
        Case(workload=workload, optimizer=name, target=target, cluster=spec, path=path)
        for workload, (name, target), path, spec in itertools.product(
            workloads, targets.items(), paths, _list_clusters(config, clusters, kinds)
        )
    ]


def _list_programs(
    config: pytest.Config,
    file: str,
    *names: str,
    clusters: Sequence[str] = ("mwms:2",),
    kinds: Sequence[str] = ("mirrored", "mwms"),
) -> list[Case]:
    if config.getoption("optimizer"):
        return []
    return [
        Case(
            workload=None,
            optimizer=name,
            target=f"{_HERE / 'programs' / file}:{name}",
            cluster=spec,
        )
        for name, spec in itertools.product(
            names, _list_clusters(config, clusters, kinds)
        )
    ]


def _take_one_cluster(cases: Sequence[Case]) -> list[Case]:
    """Of the cases that differ in nothing but their cluster one, each in its turn."""
    alike: dict[Case, list[Case]] = {}
    for case in cases:
        alike.setdefault(replace(case, cluster=""), []).append(case)
    return [found[turn % len(found)] for turn, found in enumerate(alike.values())]


def _list_clusters(
    config: pytest.Config, default: Sequence[str], kinds: Sequence[str] = ()
) -> list[str]:
    given = config.getoption("clusters")
    names = default if given is None else _split_names(given)
    specs = list(map(ClusterSpec.parse, names))
    if _is_far(config) and not given:
        # An engine has to be asked for a number.
        specs = [s for s in specs if ALL not in (s.workers, s.replicas_per_worker)]
    return [str(spec) for spec in specs if not kinds or spec.kind in kinds]


def _split_names(given: str) -> list[str]:
    names = given.split(",")
    if not all(map(str.strip, names)):
        raise BadInputError(
            "--clusters has specs with a comma between each two. Expected "
            f"{','.join(filter(str.strip, names)) or 'mirrored:4,mwms:2'}, for "
            f"example. Received: {given!r}."
        )
    return names


def _is_far(config: pytest.Config) -> bool:
    return config.getoption("distbench_engine") not in (None, "local")


def _find_machine(config: pytest.Config) -> Machine:
    """This machine, with the GPUs that are required."""
    required = config.getoption("require_gpus")
    required = required or config.getoption("distbench_require_gpus") or 0
    return inspect_machine().with_gpus(required)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what `--every` passes over."""
    counts: Counter[Path] = Counter()
    kept, left = [], []
    for item in items:
        if _find_case(item) is None:
            kept.append(item)
            continue
        number = counts[item.path]
        counts[item.path] += 1
        (left if number % config.getoption("every") else kept).append(item)
    if left:
        items[:] = kept
        config.hook.pytest_deselected(items=left)


def _find_case(item: pytest.Item) -> Case | None:
    """What an item runs; tests of other folders may have cases of their own."""
    spec = getattr(item, "callspec", None)
    case = None if spec is None else spec.params.get("case")
    return case if isinstance(case, Case) else None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note the clusters of the tests that differ in nothing else."""
    together = session.config.stash.setdefault(_TOGETHER, {})
    for item in session.items:
        if case := _find_case(item):
            together.setdefault(_find_group(item), []).append(case.cluster)


def _find_group(item: Any) -> object:
    """Equal for tests that differ in their cluster alone."""
    params = dict(item.callspec.params)
    params["case"] = replace(params["case"], cluster="")
    return item.nodeid.partition("[")[0], repr(sorted(params.items()))


@pytest.fixture
def run_case(distbench: Any, case: Case, request: pytest.FixtureRequest) -> Callable:
    """Checks a target on the cluster of the test.

    The first of the tests that differ in their cluster alone checks all their clusters,
    which are judged by the same run on one device. What the nodes of an engine make of
    an open cluster spec is not known here: there each test checks its own.
    """
    is_far = _is_far(request.config)
    group = _find_group(request.node)
    clusters = request.config.stash[_TOGETHER][group]
    known = request.config.stash.setdefault(_KNOWN, {})

    def run(target: Any, **options: Any) -> Verdict:
        if is_far or len(clusters) == 1:
            return distbench.check(target, case.cluster, **options)
        key = group, repr(sorted(options.items()))
        if key not in known:
            try:
                known[key] = distbench.check(target, clusters, **options)
            except BadInputError:
                # Bad may be what only one of them is asked for.
                return distbench.check(target, case.cluster, **options)
        return known[key].on(name_cluster(case.cluster, _find_machine(request.config)))

    return run


@pytest.fixture
def check(run_case: Any, case: Case, request: pytest.FixtureRequest) -> Callable:
    """Runs the test's scenario; skips it where the machine lacks something."""
    required = request.config.getoption("require_gpus")

    def check_case(**options: Any) -> Verdict:
        if required:
            options["require_gpus"] = required
        if case.workload is not None:
            options["workload"] = case.workload
        target = parse_target(case.target, request.config.invocation_params.dir)
        try:
            options.setdefault("path", case.path)
            verdict = run_case(target, **options)
        except BadInputError as error:
            if not request.config.getoption("optimizer"):
                raise
            # Not every family has each path, and not every optimizer a sparse rule.
            if f"no aggregation path '{case.path}'" in str(error):
                pytest.skip(f"need a family with the path '{case.path}' ({error})")
            if case.workload == "embedding":
                pytest.skip(f"need an optimizer that takes sparse gradients ({error})")
            raise
        if all(str(run.status) == "skipped" for run in verdict.runs):
            pytest.skip(verdict.runs[0].message)
        return verdict

    return check_case


@pytest.fixture
def replicas(case: Case, request: pytest.FixtureRequest) -> int:
    """Number of replicas of the test's cluster."""
    if count := ClusterSpec.parse(case.cluster).replicas:
        return count
    if _is_far(request.config):
        pytest.skip(f"need a number of replicas: only the engine knows {case.cluster}")
    return count_replicas(case.cluster, _find_machine(request.config))


def count_replicas(cluster: str, machine: Machine) -> int:
    """Replicas of a cluster, of an open one as many as it has on a machine."""
    return ClusterSpec.parse(name_cluster(cluster, machine)).replicas


@pytest.fixture
def diagnose(check: Callable) -> Callable:
    """Runs the test's scenario, which has to fail; returns its findings in order."""

    def find_mistakes(**options: Any) -> tuple[Finding, ...]:
        verdict = check(**options)
        assert str(verdict.status) == "fail"
        return verdict.findings

    return find_mistakes
