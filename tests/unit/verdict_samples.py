"""Verdicts to print, with names that try to break the page."""

from __future__ import annotations

from distbench.verdict import Finding, Run, Status, Verdict, Worst

EVIL = "dense[bold]/k\x1b[31m<&\"'\x00\u202e]]>\ud800"

LINEAR_SETUP = {
    "steps": 3,
    "dtype": "float32",
    "seed": 1,
    "keras": None,
    "jit": None,
    "restore_from": "",
    "timeout_s": 120.0,
    "split": [5, 3],
}
"""Of the run of a linear scenario on two replicas."""


def make_finding(**changes) -> Finding:
    settings = {
        "code": "missing-reduction",
        "phase": "reduced_gradient",
        "step": 0,
        "variable": "dense/kernel",
        "replicas": (0, 1),
        "ratio": 0.5,
        "error": 0.25,
        "bound": 1e-7,
        "explanation": "Step 0: nobody sums; let the optimizer aggregate.",
        "confidence": 0.97,
        **changes,
    }
    return Finding(**settings)


def make_run(status: Status = Status.PASS, **changes) -> Run:
    settings = {
        "scenario": "mlp-adam-mwms:2-none",
        "cluster": "mwms:2",
        "path": "none",
        "tier": "bounded",
        "workload": "mlp",
        "seconds": 0.9,
        "checked": 412,
        "worst": Worst(phase="variable", variable="w", error_over_bound=0.25),
        **changes,
    }
    return Run(status=status, **settings)


def make_verdict(*runs: Run, **changes) -> Verdict:
    settings = {
        "target": "optimizers.py:adam",
        "environment": {"tensorflow": "2.21.0", "devices": ["cpu:0"]},
        **changes,
    }
    return Verdict(runs=runs, **settings)


FAILED = make_verdict(
    make_run(Status.FAIL, findings=(make_finding(),)),
    make_run(Status.FAIL, findings=(make_finding(ratio=0.6),), tier="exact"),
    make_run(Status.SKIPPED, message="need 2 GPUs, have 0", checked=0, worst=None),
)

TEXTS = [
    "",
    "plain",
    EVIL,
    "a\nb\r\x85\u2028",
    "\ud800\udfff\ufffe",
    "]]><&'\"",
    "a\u2029b",
    "\ue000\U0010fffd",
    "\u202e\u200b",
    "\u0378",
    "a\xa0b\u3000",
]
"""Words that steer terminals, turn text, end what they stand in, or are no words."""
