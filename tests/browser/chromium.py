"""Debian's Chromium without a window, driven by its own driver."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from selenium import webdriver

_NEEDED = ("chromium", "chromedriver")
_SWITCHES = (
    "--headless=new",
    # Root, who runs containers, gets no sandbox; what is opened is our own file.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
)


def find_lack() -> str:
    """What this machine lacks, as need and have; empty where it lacks nothing."""
    found = {name: shutil.which(name) for name in _NEEDED}
    if all(found.values()):
        return ""
    have = ", ".join(name for name, place in found.items() if place) or "neither"
    return (
        f"need {' and '.join(_NEEDED)} (Debian: apt-get install chromium "
        f"chromium-driver), have {have}"
    )


@contextmanager
def open_browser(width: int = 1200, height: int = 1000) -> Iterator[Any]:
    """A browser that notes what the console says and what is requested."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for switch in (*_SWITCHES, f"--window-size={width},{height}"):
        options.add_argument(switch)
    options.set_capability(
        "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
    )
    service = webdriver.ChromeService(str(shutil.which("chromedriver")))
    browser = webdriver.Chrome(options=options, service=service)
    try:
        yield browser
    finally:
        browser.quit()


def prefer(browser: Any, scheme: str) -> None:
    """Have the pages believe that the user prefers `light` or `dark` colours."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def list_complaints(browser: Any) -> list[str]:
    """Errors and warnings of the console since the last call."""
    return [
        entry["message"]
        for entry in browser.get_log("browser")
        if entry["level"] not in ("INFO", "DEBUG")
    ]


def list_requests(browser: Any) -> list[str]:
    """What was asked of the network since the last call; no files of this machine."""
    messages = [
        json.loads(e["message"])["message"] for e in browser.get_log("performance")
    ]
    urls = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    return [url for url in urls if urlsplit(url).scheme not in ("file", "data", "blob")]


def open_page(browser: Any, page: Path, fragment: str = "") -> None:
    """Load a page anew, also where only the fragment differs."""
    browser.get("about:blank")
    browser.get(page.as_uri() + fragment)
