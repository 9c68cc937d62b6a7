"""What is fitted to costs of few workers, and told of many."""

from __future__ import annotations

import numpy as np
import pytest
from imported_scripts import import_scripts

with import_scripts("measured", "scaling_page") as scripts:
    fit_growth = scripts["scaling_page"].fit_growth
    make_page = scripts["scaling_page"].make_page

WORKERS = np.array([2.0, 4.0, 8.0, 16.0, 32.0, 64.0])


@pytest.mark.parametrize(
    ("law", "words"),
    [
        (lambda n: 75 + 0.25 * n, "75 + 0.25 N"),
        (lambda n: 2 + np.log2(n), "2 + 1 log2 N"),
        (lambda n: 1 / n + 0.5 + 0.02 * n, "1 / N + 0.5 + 0.02 N"),
        (np.ones_like, "1"),
    ],
    ids=["line", "tree", "fixed", "constant"],
)
def test_a_law_is_found_through_noise(law, words):
    growth = fit_growth(WORKERS, law(WORKERS))
    beyond = np.array([256.0, 1024.0])
    np.testing.assert_allclose(growth(beyond), law(beyond), rtol=1e-6)
    assert str(growth).startswith(words)
    noise = 1 + np.random.default_rng(0).normal(size=len(WORKERS)) * 1e-3
    noisy = fit_growth(WORKERS, law(WORKERS) * noise)
    np.testing.assert_allclose(noisy(beyond), law(beyond), rtol=0.1)


def test_what_is_enough_for_how_many():
    growth = fit_growth(WORKERS, 2 + 0.5 * WORKERS)
    assert growth.find_most(10 * (2 + 0.5 * 10)) == 10
    assert growth.find_most(11 * (2 + 0.5 * 11) - 0.1) == 10
    assert growth.find_most(1.0) == 0


def test_the_page_names_what_runs_out_first():
    rows = [
        {
            "workers": int(n),
            "private_mib": 75.0,
            "threads": 100.0,
            "files": 15.0,
            "listening": 1.0,
            "connections": 3.0,
            "bench_files": 10 + 2 * int(n),
            "run_s": 0.1 * n,
            "check_s": 0.2 * n,
            "check_cpu_s": 0.4 * n,
            "bench_mib": 45.0,
        }
        for n in WORKERS
    ]
    limits = {
        "memory_mib": 7500,
        "threads": 1e6,
        "processes": 32768,
        "files": 1024,
        "ports": 28232,
    }
    page = make_page({"rows": rows, "limits": limits})
    last = page.rpartition("|---|---:|---:|\n")[2].splitlines()
    assert last[0] == "| memory, MiB | 7,500 | 100 |"
    assert last[1].startswith("| numbers of processes and threads | 32,768 | 327 |")
