"""How each of the cases of scripts/benchmark.py is measured, side by side."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmark_gains import LACKS, Bench
from benchmark_program import measure_memory, measure_steps, start, train
from benchmark_rival import Rival
from benchmark_suite import measure_suite
from measure_check import SUBJECT, WORKLOAD, check_cold, check_warm

import distbench
from distbench.launch.spares import Spares

Samples = Mapping[str, list[float]]
Side = Callable[[], float]
_MIB = 1 << 20
SERIES = 50
_IMPORTS_AROUND = 5
LARGE = (1024, 5000, 1000)


def take_turns(sides: Mapping[str, Side], rounds: int) -> Samples:
    """Samples of all sides in turn; the first round, which warms up, is left out."""
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            taken = side()
            if number:
                samples[name].append(taken)
    return samples


def time_call(function: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def time_python(code: str) -> float:
    """Seconds that a new Python takes for a line of code."""
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    return time_call(
        lambda: subprocess.run(
            command, check=True, timeout=300, env=environment, capture_output=True
        )
    )


_HELP = (
    "import sys; sys.argv = ['distbench', '--help']\n"
    "from distbench.cli import main; main()"
)
IMPORTS = {
    "python alone": partial(time_python, "pass"),
    "import distbench": partial(time_python, "import distbench"),
    "distbench --help": partial(time_python, _HELP),
}
COLD = {
    "distbench check": partial(time_call, partial(check_cold, "mwms:2")),
    "import tensorflow, tf_keras": partial(time_python, "import tensorflow, tf_keras"),
}


def time_saved(spec: str, *, is_all: bool) -> float:
    """Seconds of a check as `--watch` has it: by tasks that wait for it.

    Args:
        spec: The cluster.
        is_all: Whether the time counts in which they were started.
    """
    with Spares() as spares:
        check_warm(spec, spares)  # what this one takes the next one will want
        filled = time_call(spares.fill)
        checked = time_call(partial(check_warm, spec, spares))
    return filled + checked if is_all else checked


WARM = {
    **{
        f"on {spec}": partial(time_call, partial(check_warm, spec))
        for spec in ("one", "mirrored:2", "mwms:2", "mwms:4", "ps:2+1")
    },
    "on mwms:2, by tasks that waited": partial(time_saved, "mwms:2", is_all=False),
    "on mwms:2, and starting those": partial(time_saved, "mwms:2", is_all=True),
}


def measure_fresh(workers: int, program: Callable[[], float], rounds: int) -> Samples:
    """Three steps on a cluster: here, by TensorFlow's means, and by bare forks."""
    with ExitStack() as stack:
        waiting = stack.enter_context(_Waiting(workers, program))
        fresh, pool, forks, starts = (
            stack.enter_context(Rival(kind, workers, name))
            for kind, name in (
                *((kind, program.__name__) for kind in ("run", "pool", "forks")),
                ("forks", start.__name__),
            )
        )
        sides = {
            "fresh processes": partial(_run, workers, program),
            "fresh processes that waited": waiting.measure,
            "multi_process_runner.run": fresh.measure,
            "MultiProcessPoolRunner, warm": pool.measure,
            "bare forks": forks.measure,
            "bare forks, the strategy alone": starts.measure,
        }
        return take_turns(sides, rounds)


def measure_series(workers: int, rounds: int) -> Samples:
    """Many in a row, each in fresh processes, and in the processes of one pool."""
    with (
        Rival("pool", workers) as pool,
        Rival("forks", workers) as forks,
        _Waiting(workers) as waiting,
    ):
        pool.measure()
        sides = {
            "fresh processes": partial(_run_series, partial(_run, workers)),
            "fresh processes that waited, and starting those": partial(
                _run_series, partial(time_call, waiting.measure)
            ),
            "MultiProcessPoolRunner": partial(_run_series, pool.measure),
            "bare forks": partial(_run_series, forks.measure),
        }
        return take_turns(sides, rounds)


def measure_workers(workers: int, rounds: int) -> Samples:
    """The same scenario on more workers."""
    with Rival("forks", workers) as forks:
        sides = {
            "fresh processes": partial(_run, workers),
            "bare forks": forks.measure,
        }
        return take_turns(sides, rounds)


def _run(
    workers: int,
    program: Callable[[], float] = train,
    spares: Spares | None = None,
) -> float:
    run = partial(distbench.run, program, f"mwms:{workers}", timeout_s=600)
    return time_call(partial(run, spares=spares))


class _Waiting:
    """Fresh processes that were started before they were wanted."""

    def __init__(self, workers: int, program: Callable[[], float] = train) -> None:
        self._spares = Spares()
        self._run = partial(_run, workers, program, self._spares)

    def __enter__(self) -> _Waiting:
        self._run()  # what this one takes the next one will want
        return self

    def __exit__(self, *_: object) -> None:
        self._spares.close()

    def measure(self) -> float:
        """Seconds of a run by tasks that wait when it begins."""
        self._spares.fill()
        return self._run()


def _run_series(side: Side) -> float:
    return sum(side() for _ in range(SERIES))


def measure_task_memory(workers: int, rounds: int) -> Samples:
    """Memory of each worker, and of a process that imports TensorFlow by itself."""
    names = ("a task, private", "a task, shared")
    samples: dict[str, list[float]] = {name: [] for name in names}
    alone: list[float] = []
    folder = str(Path(__file__).parent)
    code = (
        f"import sys; sys.path.insert(0, {folder!r})\n"
        "from benchmark_program import measure_memory; print(measure_memory()[0])"
    )
    for _ in range(rounds):
        found = distbench.run(measure_memory, f"mwms:{workers}", timeout_s=600)
        for name, kind in zip(names, zip(*found.values(), strict=True), strict=True):
            samples[name] += [size / _MIB for size in kind]
        done = subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        )
        alone.append(int(done.stdout.split()[-1]) / _MIB)
    return {**samples, "a process of its own, private": alone}


def measure_gains(rounds: int) -> Samples:
    """Processor time of a check: as it is, and without each thing that was gained."""
    with ExitStack() as stack:
        benches = {name: stack.enter_context(Bench(name)) for name in LACKS}
        return take_turns({n: b.measure for n, b in benches.items()}, rounds)


def measure_taps(layers: tuple[int, int, int], rounds: int) -> Samples:
    """Steps of a network on two replicas, in turn without and with taps."""
    found = distbench.run(
        measure_steps, "mirrored:2", args=(layers, rounds), timeout_s=600
    )
    samples: Samples = found["worker", 0]
    return samples


def check_large(
    layers: tuple[int, int, int], replicas: int, steps: int
) -> dict[str, Any]:
    """A check in a process of its own, which tells what it took."""
    command = [sys.executable, str(Path(__file__).with_name("benchmark_scale.py"))]
    command += ["--layers", *map(str, layers), "--replicas", str(replicas)]
    done = subprocess.run(
        [*command, "--steps", str(steps)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=3600,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if found["status"] != "pass":
        raise RuntimeError(f"A correct program did not pass: {found}")
    return found


def measure_scale(rounds: int) -> Samples:
    """Memory and disk of a check of 10⁷ parameters, 8 replicas and 20 steps."""
    found = [check_large(LARGE, 8, 20) for _ in range(rounds)]
    sides = {
        "the bench process, at most": "bench_bytes",
        "all tasks together, at most": "tasks_bytes",
        "traces on disk": "disk_bytes",
        "numbers recorded": "recorded_bytes",
    }
    return {name: [one[key] / 1e9 for one in found] for name, key in sides.items()}


def measure_compare(rounds: int) -> Samples:
    """Seconds for each GB that was recorded, of models of several sizes."""
    sides = {
        "10⁴ parameters": (64, 128, 10),
        "10⁶ parameters": (512, 1600, 100),
        "10⁷ parameters": LARGE,
    }
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, layers in sides.items():
            found = check_large(layers, 2, 3)
            samples[name].append(found["judge_s"] / (found["recorded_bytes"] / 1e9))
    return samples


def check_all(*checks: Sequence[str]) -> None:
    """Check the subject several times, each time on clusters with one run for all."""
    for clusters in checks:
        distbench.check(SUBJECT, clusters, workload=WORKLOAD).raise_for_status()


_MODELS = Path(__file__).with_name("benchmark_models.py")


def check_model(name: str, code: str = "") -> None:
    """One check of a model, in this process; it finds what is wrong, if anything is."""
    verdict = distbench.check(f"{_MODELS}:{name}", "mirrored:2", timeout_s=600)
    found = [finding.code for run in verdict.runs for finding in run.findings]
    if (verdict.status, found) != (("fail", [code]) if code else ("pass", [])):
        raise RuntimeError(f"Expected {code or 'a pass'}. Received: {verdict}")


OF_SIZE = {
    "Adam on the linear workload": partial(
        time_call, partial(check_warm, "mirrored:2")
    ),
    "a transformer of 1.1 million parameters": partial(
        time_call, partial(check_model, "make_transformer")
    ),
    "MobileNetV2, 2.3 million": partial(
        time_call, partial(check_model, "make_mobilenet")
    ),
    "MobileNetV2 with a clip before the sum, which fails": partial(
        time_call,
        partial(check_model, "make_clipped_mobilenet", "clip-before-reduction"),
    ),
}
ALIKE = ("mirrored:2", "mwms:2", "central:2")
SHARED = {
    "in one check": partial(time_call, partial(check_all, ALIKE)),
    "in a check for each": partial(
        time_call, partial(check_all, *((spec,) for spec in ALIKE))
    ),
}


def measure_scenarios(rounds: int) -> Samples:
    """The bench's own scenarios, and how fast the machine is before and after them."""
    samples: dict[str, list[float]] = {}
    for _ in range(rounds):
        imports = [time_python("import tensorflow") for _ in range(_IMPORTS_AROUND)]
        taken, used = measure_suite()
        imports += [time_python("import tensorflow") for _ in range(_IMPORTS_AROUND)]
        row = {
            "import tensorflow, alone": statistics.median(imports),
            "seconds": taken,
            "processor seconds": used,
        }
        for name, value in row.items():
            samples.setdefault(name, []).append(value)
    return samples
