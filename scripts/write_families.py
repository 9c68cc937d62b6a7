"""Check each optimizer family on each strategy and path; write docs/families.md.

What was checked before is kept in docs/measured/families.json and not run again, so
that it can be done in parts.

    python scripts/write_families.py --minutes 30        # goes on where it stopped
    python scripts/write_families.py --only 'keras3/*'   # a part of it
    python scripts/write_families.py --only 'v1/user/dense/central:2' --again
    python scripts/write_families.py --minutes 0         # writes the page, runs nothing

Exit code 0: all that is no pass is explained in scripts/families_page.py. 1: something
is not. 3: a cluster or the machine failed.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from collections.abc import Mapping, Sequence

from checked import find_heaviest, list_findings
from families_cases import Case, list_cases
from families_page import KNOWN, Row, make_page
from known_rows import find_known
from measured import (
    FOLDER,
    ROOT,
    describe_installed,
    find_commit,
    find_done,
    keep_rows,
)

import distbench
from distbench.errors import BadInputError, ClusterError
from distbench.verdict import Verdict

FIGURES = FOLDER / "families.json"
PAGE = ROOT / "docs" / "families.md"
_TIMEOUT_S = 60.0
"""Some cases wait until the deadline; nothing else comes near it."""
_UNEXPLAINED, _BAD_USAGE, _BROKEN = 1, 2, 3


def check_case(case: Case) -> Row:
    """Make one check; returns what is kept of it."""
    start_s = time.monotonic()
    try:
        verdict = distbench.check(
            case.subject,
            case.cluster,
            path=case.bench_path,
            workload=case.workload,
            timeout_s=_TIMEOUT_S,
        )
    except (BadInputError, ClusterError) as error:
        # What fails on one device already says nothing about the cluster.
        is_input = isinstance(error, BadInputError)
        row: Row = {"status": "skipped" if is_input else "error", "message": str(error)}
    else:
        row = describe_verdict(verdict)
    seconds = round(time.monotonic() - start_s, 1)
    return {"case": case.id, **row, "seconds": seconds, "distbench": find_commit()}


def describe_verdict(verdict: Verdict) -> Row:
    """What is kept of a verdict: the heaviest of its tiers."""
    status, heaviest = find_heaviest(verdict.runs)
    return {
        "status": str(status),
        "tiers": [str(run.tier) for run in verdict.runs],
        "checked": sum(run.checked for run in verdict.runs),
        "message": heaviest.message if heaviest else "",
        "findings": list_findings(heaviest),
    }


def write_results(
    cases: Sequence[Case], rows: Sequence[Row], place: Mapping[str, str]
) -> Sequence[Row]:
    """Write new rows to the figures, and the page; returns all rows."""
    order = [case.id for case in cases]
    document = keep_rows(FIGURES, rows, place, ("case",), order)
    PAGE.write_text(make_page(cases, document), "utf-8")
    kept: Sequence[Row] = document["rows"]
    return kept


def describe_row(row: Row) -> str:
    """A row in the words of the progress."""
    words = [row["status"], f"{row['seconds']} s"]
    words += [f"{f['code']} ({f['origin']})" for f in row.get("findings", ())]
    if row["status"] != "pass" and find_known(row, KNOWN) is None:
        words.append("NOT EXPLAINED: " + row["message"].partition("\n")[0][:300])
        words += [f["explanation"] for f in row.get("findings", ())]
    return " ".join(words)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", metavar="CASE", default="*", help="a pattern")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--again", action="store_true", help="what was checked, too")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """List, check, write; returns the exit code."""
    options = parse_arguments(arguments)
    place = describe_installed()
    cases = list_cases()
    chosen = [case for case in cases if fnmatch.fnmatch(case.id, options.only)]
    if not chosen:
        print(
            f"No case fits {options.only!r}. There are {len(cases)}, such as "
            f"{cases[0].id}.",
            file=sys.stderr,
        )
        return _BAD_USAGE
    done = find_done(FIGURES, place, ("case",))
    todo = [case for case in chosen if options.again or (case.id,) not in done]
    print(f"{len(chosen)} checks, {len(todo)} to be made", flush=True)
    start_s = time.monotonic()
    for number, case in enumerate(todo, 1):
        if time.monotonic() - start_s >= 60 * options.minutes:
            break
        row = check_case(case)
        write_results(cases, [row], place)
        print(f"[{number}/{len(todo)}] {case.id}: {describe_row(row)}", flush=True)
    rows = write_results(cases, (), place)
    if any(row["status"] == "error" for row in rows):
        return _BROKEN
    is_explained = all(
        row["status"] == "pass" or find_known(row, KNOWN) for row in rows
    )
    return 0 if is_explained else _UNEXPLAINED


if __name__ == "__main__":
    sys.exit(main())
