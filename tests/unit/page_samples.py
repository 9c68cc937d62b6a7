"""Verdicts whose pages have everything: findings with numbers, logs, odd names."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from judged_runs import MEAN
from simulated_rule import Rule
from training_simulator import Fault, observe
from verdict_samples import make_finding, make_run, make_verdict

from distbench.checking.detailing import keep_details
from distbench.details import Compared, Details, Series
from distbench.diagnose.judge import judge
from distbench.verdict import Finding, Outcome, Run, Status, Verdict

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>"
TEMPLATE = "{{ 7 * 7 }}{% raw %}"
QUOTES = "\"'`><b title='x' onclick=\"alert(3)\">"
CONTROLS = "a\x1b[31m\x00\x07b\ud800"
TURNED = "abc\u202edef\u2066 שלום"
MATHS = "$$\\sqrt{x}$$"
ODD = (MARKUP, TEMPLATE, QUOTES, CONTROLS, TURNED, MATHS)


def judge_run(fault: Fault, *, scenario: str, cluster: str, **settings: Any) -> Run:
    """A run of the simulated cluster, judged, with its details."""
    evidence = observe(fault, rule=Rule(name="momentum"), **settings)
    judgement = judge(evidence)
    return make_run(
        judgement.status,
        scenario=scenario,
        cluster=cluster,
        checked=judgement.checked,
        worst=judgement.worst,
        findings=judgement.findings,
        references=judgement.references,
        message=judgement.message,
        setup={"target": "my.py:adam", "steps": 3, "seed": 1, "split": [5, 3]},
        details=keep_details(
            evidence,
            judgement.compared,
            {"worker-0": "epoch 1\nloss 0.5", "worker-1": ""},
        ),
    )


@functools.cache  # nobody can change it, and to judge the runs takes long
def make_checked_verdict() -> Verdict:
    """Two scenarios on two clusters: what one averages, and what one gets right."""
    return make_verdict(
        judge_run(Fault(reduce=MEAN), scenario="mlp-adam-mwms:2-x", cluster="mwms:2"),
        judge_run(
            Fault(reduce=MEAN),
            scenario="mlp-adam-mirrored:4-x",
            cluster="mirrored:4",
            replicas=4,
        ),
        judge_run(Fault(), scenario="linear-adam-mwms:2-x", cluster="mwms:2"),
        make_run(
            Status.SKIPPED,
            scenario="linear-adam-mirrored:4-x",
            cluster="mirrored:4",
            message="need 4 GPUs, have 0",
            checked=0,
            worst=None,
        ),
        target="my.py:adam",
    )


def make_odd_verdict() -> Verdict:
    """All that users name, named to break a page; and numbers that are none."""
    text = " ".join(ODD)
    compared = tuple(
        Compared(
            step=0,
            call=0,
            phase="variable",
            variable=name,
            replica=number % 2,
            relation="reference",
            against=text,
            error=float("inf"),
            bound=float("nan"),
            error_over_bound=float(("nan", "inf", "-inf")[number % 3]),
            ratio=float(("nan", "inf", "-inf", "0", "-1")[number % 5]),
            wrong=True,
        )
        for number, name in enumerate(ODD)
    )
    series = tuple(
        Series(
            phase=phase,
            variable=name,
            replica=replica,
            observed=replica == 0,
            steps=(-1, 0, 1),
            values=(float("nan"), float("inf"), 1.5),
        )
        for name in ODD
        for phase in ("loss", "variable")[name != MARKUP :]
        for replica in (0, -1)
    )
    finding = make_finding(
        code=text,
        phase="variable",
        variable=MARKUP,
        variables=ODD,
        explanation=text,
        ratio=float("nan"),
        error=float("inf"),
        bound=float("-inf"),
        outcome=Outcome(
            phase="variable",
            step=0,
            variable=text,
            index=0,
            element=(0, 1),
            replica=0,
            expected=float("nan"),
            observed=float("inf"),
            bound=0.0,
        ),
    )
    run = make_run(
        Status.FAIL,
        scenario=text,
        cluster=text,
        tier=text,
        message=text,
        detail=text,
        references={text: text},
        setup={text: text},
        findings=(finding,),
        details=Details(compared=compared, series=series, logs={text: text}),
    )
    return make_verdict(
        run, target=text, environment={text: text, "devices": [text], "v": {text: text}}
    )


def make_long_verdict(runs: int) -> Verdict:
    """Many runs with the numbers of models that have many variables."""
    failed = judge_run(Fault(reduce=MEAN), scenario="s", cluster="mwms:2")
    passed = judge_run(Fault(), scenario="s", cluster="mwms:2")

    def widen(run: Run, number: int) -> Run:
        assert run.details is not None
        series = tuple(
            replace(line, variable=f"{line.variable}/{copy}")
            for copy in range(6)
            for line in run.details.series
        )
        logs = {f"worker-{task}": "a line of a log\n" * 40 for task in range(4)}
        findings: tuple[Finding, ...] = tuple(
            replace(finding, variable=f"{finding.variable}{number % 20}")
            for finding in run.findings
        )
        return replace(
            run,
            scenario=f"workload{number}-adam-mwms:2-default",
            findings=findings,
            details=replace(run.details, series=series, logs=logs),
        )

    return make_verdict(
        *(widen(passed if number % 2 else failed, number) for number in range(runs))
    )
