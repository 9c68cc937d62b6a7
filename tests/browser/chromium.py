"""Debian's Chromium without a window, driven by its own driver."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.support.wait import WebDriverWait

_NEEDED = ("chromium", "chromedriver")
_SWITCHES = (
    "--headless=new",
    # Root, who runs containers, gets no sandbox; what is opened is our own file.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
)
_DEADLINE_S = 20
_visits = itertools.count()


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
    # The driver's own wait may miss the event of a page that has loaded, and blocks
    # for its 300 s then: `open_page` asks the page instead.
    options.page_load_strategy = "none"
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
    query = f"?{next(_visits)}"
    browser.get(page.as_uri() + query + fragment)
    is_there = "return location.search === arguments[0] && document.readyState"
    wait(
        browser,
        lambda _: browser.execute_script(is_there, query) == "complete",
        # The page before this one is asked, and goes away meanwhile.
        unanswered=(WebDriverException,),
    )


def wait(
    browser: Any,
    condition: Callable[[Any], Any],
    unanswered: tuple[type[Exception], ...] = (),
) -> Any:
    """What a condition gives as soon as it holds.

    Args:
        browser: What is passed to the condition.
        condition: Asked ten times a second.
        unanswered: What it may raise as long as it has no answer.

    Raises:
        TimeoutException: It did not hold in time.
    """
    waiting = WebDriverWait(browser, _DEADLINE_S, 0.1, ignored_exceptions=unanswered)
    return waiting.until(condition)
