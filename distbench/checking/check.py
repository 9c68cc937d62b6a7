"""From a subject to its verdict: a checker with all that it needs around it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone

from distbench.checking.checker import Checker
from distbench.checking.launches import make_launch
from distbench.checking.own_keras import follow_target
from distbench.checking.plan import list_clusters
from distbench.checking.telling import Telling
from distbench.engines import open_engine
from distbench.launch.rundir import RunDirectory, tell_unused
from distbench.launch.spares import Spares
from distbench.options import CheckOptions, Progress, describe_options
from distbench.target import TargetRef, adopt_target
from distbench.target.reading import check_source
from distbench.verdict import Verdict

OnEndEarly = Callable[[Verdict], None]


def check_target(
    target: TargetRef,
    options: CheckOptions,
    progress: Progress | None = None,
    spares: Spares | None = None,
    on_end_early: OnEndEarly | None = None,
) -> Verdict:
    """Check a subject on every scenario that the options name.

    Args:
        target: The subject.
        options: Which scenarios to run.
        progress: Who wants to know how far it is.
        spares: Has tasks of this machine that were started before.
        on_end_early: Told what was judged, where an exception such as Ctrl-C ends a
            check that has begun; the exception follows.

    Raises:
        BadInputError: The subject or an option cannot be used; names the thing.
        ClusterError: The machine cannot start tasks at all.
    """
    return _check(target, options, progress, spares, on_end_early)[1]


def check_each(target: TargetRef, options: CheckOptions) -> Mapping[str, Verdict]:
    """Check a subject; returns a verdict for each cluster spec of the options."""
    checker, verdict = _check(target, options)
    return {spec: verdict.on(checker.name(spec)) for spec in options.clusters}


def _check(
    target: TargetRef,
    options: CheckOptions,
    progress: Progress | None = None,
    spares: Spares | None = None,
    on_end_early: OnEndEarly | None = None,
) -> tuple[Checker, Verdict]:
    if target.kind == "file":
        check_source(target.path, target.attribute)
    start_s, begun = time.monotonic(), datetime.now(timezone.utc)
    asked = describe_options(options)

    def with_time(verdict: Verdict) -> Verdict:
        seconds = time.monotonic() - start_s
        return replace(verdict, seconds=seconds, begun=begun, options=asked)

    def attempt(options: CheckOptions) -> tuple[Checker, Verdict]:
        checker = None
        try:
            with _open_checker(target, options, progress, spares) as checker:
                verdict = checker.run()
            return checker, with_time(verdict)
        except BaseException as error:
            # Or as tasks and folders were cleared away, when all had been judged.
            judged = None if checker is None else checker.end_early(error)
            if judged is not None and on_end_early is not None:
                on_end_early(with_time(judged))
            raise

    return follow_target(options, attempt)


@contextmanager
def _open_checker(
    target: TargetRef,
    options: CheckOptions,
    progress: Progress | None = None,
    spares: Spares | None = None,
) -> Iterator[Checker]:
    telling = Telling(progress)
    if unused := tell_unused():
        telling.note(unused)
    with (
        RunDirectory() as directory,
        open_engine(
            options.engine,
            list_clusters(options),
            jobs=options.jobs,
            allow_public=options.allow_public,
            log=telling.note,
        ) as engine,
    ):
        launch = make_launch(directory, options, engine, telling.note_once, spares)
        is_far = options.engine != "local"
        own = adopt_target(target, directory.path, is_far=is_far)
        yield Checker(own, options, launch, telling)
