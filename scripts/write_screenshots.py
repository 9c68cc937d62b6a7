"""Checks a seeded fault, and takes pictures of the report for the documentation.

python scripts/write_screenshots.py [--page report.html]
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measured import ROOT
from PIL import Image

from distbench.checking.check import check_target
from distbench.options import CheckOptions
from distbench.report.files import write_report
from distbench.report.page import verdict_to_html
from distbench.target import parse_target

DOCS = ROOT / "docs"
FAULT = "distbench.faults.clips:ClipsWhatItIsGiven"
CLUSTERS = ("mirrored:4", "mwms:2", "ps:2+1")
FINDING = "finding-clip-before-reduction"
WIDTH, HEIGHT = 1000, 1180
_COLOURS = 96
_DRAWN_S = 60.0


def main(words: list[str]) -> int:
    """Take the pictures; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", type=Path, help="take them of this page")
    page = parser.parse_args(words).page
    sys.path.insert(0, str(ROOT / "tests" / "browser"))
    import chromium

    if lack := chromium.find_lack():
        print(lack, file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as folder:
        if page is None:
            page = Path(folder) / "report.html"
            _write_page(page)
        with chromium.open_browser(WIDTH, HEIGHT) as browser:
            for scheme, place in (("light", "main"), ("dark", FINDING)):
                chromium.prefer(browser, scheme)
                chromium.open_page(browser, page.absolute())
                picture = _take(browser, place)
                path = DOCS / f"report-{scheme}.png"
                _save(picture, path)
                print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} kB")
    return 0


def _write_page(page: Path) -> None:
    options = CheckOptions(
        clusters=CLUSTERS,
        tiers=("bounded",),
        workloads=("embedding", "linear"),
        details=True,
    )
    verdict = check_target(parse_target(FAULT), options)
    write_report(page, verdict_to_html(verdict, options))


def _take(browser: Any, place: str) -> bytes:
    """A picture from an element on, once all that is in view was drawn."""
    browser.execute_script(
        "if (arguments[0] !== 'main') document.getElementById(arguments[0])"
        ".querySelector('dl').scrollIntoView()",
        place,
    )
    deadline_s = time.monotonic() + _DRAWN_S
    waiting = """
        const waiting = document.querySelectorAll(".plot:not([data-drawn])");
        return [...waiting].some((plot) => {
          const { top, bottom } = plot.getBoundingClientRect();
          return bottom > 0 && top < innerHeight;
        });
    """
    while browser.execute_script(waiting):
        if time.monotonic() > deadline_s:
            raise TimeoutError("A plot in view was not drawn.")
        time.sleep(0.1)
    time.sleep(1)  # a plot is painted in the frame after it was made
    return bytes(browser.get_screenshot_as_png())


def _save(picture: bytes, path: Path) -> None:
    """Write a picture of few colours: they are in the repository."""
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(_COLOURS)
    image.save(path, optimize=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
