"""docs/performance.md from the figures of scripts/benchmark.py."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmark_cases import CASES, Case
from measured import describe_measured, write_paragraph

_LEFT_OUT = """
## What was tried and left out

- Building a graph before the fork, so that a task's first trace finds Python's caches
  warm. It saves a little, but TensorFlow keeps a thread for what it folds in graphs
  (`tf_graph_runner`), and a process with a second thread is not forked here.
- Telling Linux in advance which pages a task will write (`MADV_POPULATE_WRITE`), as
  learned from another task: copying them is what takes the time, not the faults.
- Fewer rounds of the garbage collector: within the noise, since what was imported is
  left out of them already.
- Small pages for the tasks of large clusters alone. On a virtual machine that gives its
  free memory back to its host, zeroing the huge pages of very many tasks takes more
  than they save; with fewer tasks they win.
- Digests that the step itself makes, by an op of TensorFlow's: no faster than XXH3 is
  for what lies in memory when the step is over, and made in steps that nobody records
  as well.
- Reading all taps by one traced function: it takes as long for a few of them, and
  tracing it for many takes longer than a step.
- Tasks that wait for the next check of a series, as they do for that of `--watch`: a
  series has no idle time in which to start them, and the step of the bench's own by
  which they load what a first step loads is more work, not less.
- Going without the ops that oneDNN puts in the place of TensorFlow's, which looks
  through all kernels for each op of a graph: a small check takes less, but
  convolutions take more.
- Joining the server's pages to huge ones before it forks (`MADV_COLLAPSE`), so that a
  fork copies a smaller page table: of what a check takes the forks save as much as the
  joining costs.
- Handing what AutoGraph made of a function on to tasks that start later, by the code
  that it was made of. A check of an optimizer converts nothing; one of a program whose
  tasks all find everything done saves less than what two runs of it are apart, for a
  change of parts that are the framework's own.

A fresh cluster cannot come near the warm pool. TensorFlow's server alone queues
requests by the thousand as it starts (`grpc_worker_service.cc`), and a process that
makes its strategy, and takes no step, takes longer than the pool takes for everything:
the side "bare forks, the strategy alone" measures it. Where tasks have waited
(`distbench.Spares`, `--watch`) that is behind them. What they still have to do is what
the pool did in its first run: AutoGraph converts the source of a step once in a
process, and two of the cases differ in that alone.
"""


def make_page(document: Mapping[str, Any]) -> str:
    """The page that shows the rows that there are, in the order of the cases."""
    rows = {row["case"]: row for row in document["rows"]}
    lines = [
        "<!-- Written by scripts/benchmark.py from docs/measured. -->",
        "",
        "# Performance",
        "",
        *write_paragraph(
            "What the bench costs, beside what else there is. The sides of a case take "
            "turns in one run, and a ratio is the median of the rounds' ratios to the "
            "first side, with the quartiles: it holds on a busy machine as well, which "
            "seconds do not. The rivals are TensorFlow's own test code: "
            "`multi_process_runner.run` starts processes that import TensorFlow, and "
            "`MultiProcessPoolRunner` keeps its processes, and what a test left in "
            "them, for the next one. Bare forks of a process that has imported "
            "TensorFlow have nothing around them that waits, notices or reports: what "
            "fresh processes cost at least."
        ),
        *write_paragraph(
            "`scripts/benchmark` measures the cases that have no figures yet, and "
            "writes this page. Each case names the commit that it was measured with."
        ),
        *describe_measured(document),
    ]
    for case in CASES:
        if case.name in rows:
            row = rows[case.name]
            lines += [f"## {case.title[0].upper()}{case.title[1:]}", ""]
            lines += [f"distbench {row['distbench']}", ""]
            lines += _list_samples(case, row["samples"])
    return "\n".join([*lines, *_LEFT_OUT.strip().splitlines()]) + "\n"


def _list_samples(case: Case, samples: Mapping[str, Sequence[float]]) -> Iterator[str]:
    yield f"| | median, {case.unit} | least and most | ratio | quartiles |"
    yield "|---|---:|---:|---:|---:|"
    first, *_ = samples.values()
    for name, taken in samples.items():
        middle = statistics.median(taken)
        line = f"| {name} | {middle:.3g} | {min(taken):.3g} to {max(taken):.3g} |"
        if taken is first or not case.compared:
            yield f"{line} | |"
            continue
        if len(taken) != len(first):  # a task each, and a process a round
            yield f"{line} {middle / statistics.median(first):.2f} | |"
            continue
        ratios = [one / base for one, base in zip(taken, first, strict=True)]
        low, high = _find_quartiles(ratios)
        yield f"{line} {statistics.median(ratios):.2f} | {low:.2f} to {high:.2f} |"
    yield ""


def _find_quartiles(ratios: Sequence[float]) -> tuple[float, float]:
    if len(ratios) == 1:
        return ratios[0], ratios[0]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return low, high
