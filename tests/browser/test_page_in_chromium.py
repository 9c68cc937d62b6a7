"""The HTML report as a person meets it: opened, filtered, followed, by keyboard."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from chromium import (
    find_lack,
    list_complaints,
    list_requests,
    open_browser,
    open_page,
    prefer,
    wait,
)
from page_samples import (
    MARKUP,
    ODD,
    make_checked_verdict,
    make_long_verdict,
    make_odd_verdict,
)
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

from distbench.options import CheckOptions
from distbench.report.page import verdict_to_html
from distbench.verdict import Verdict

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(find_lack()), reason=find_lack()),
]
FINDING = "finding-mean-instead-of-sum"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as browser:
        yield browser


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Verdict], Path]:
    def write_page(verdict: Verdict) -> Path:
        page = tmp_path / "report.html"
        page.write_text(verdict_to_html(verdict, CheckOptions()), "utf-8")
        return page

    return write_page


@pytest.fixture
def page(write: Callable[[Verdict], Path]) -> Path:
    return write(make_checked_verdict())


def draw(browser: Any, within: str = "article.finding") -> list[Any]:
    """Bring each plot into view; returns what was drawn."""
    for run in browser.find_elements(By.CSS_SELECTOR, "details.run"):
        browser.execute_script("arguments[0].open = true", run)
    figures = browser.find_elements(By.CSS_SELECTOR, f"{within} figure[data-plot]")
    for figure in figures:
        browser.execute_script("arguments[0].scrollIntoView()", figure)
        wait(
            browser,
            lambda _, f=figure: f.find_elements(By.CSS_SELECTOR, "[data-drawn]"),
        )
    return figures


def list_shown(browser: Any, selector: str) -> list[str]:
    return [
        element.get_attribute("id") or element.text
        for element in browser.find_elements(By.CSS_SELECTOR, selector)
        if element.is_displayed()
    ]


def count_inside(browser: Any, selector: str) -> int:
    """How many elements match, those in the shadow trees of plots among them."""
    return browser.execute_script(
        """
        const count = (root) => root.querySelectorAll(arguments[0]).length
          + [...root.querySelectorAll("*")]
            .reduce((sum, e) => sum + (e.shadowRoot ? count(e.shadowRoot) : 0), 0);
        return count(document);
        """,
        selector,
    )


@pytest.mark.parametrize("make", [make_checked_verdict, make_odd_verdict])
def test_every_plot_is_drawn_without_a_complaint_or_a_request(browser, write, make):
    open_page(browser, write(make()))
    figures = draw(browser, "body")
    assert len(figures) > 6
    assert count_inside(browser, "canvas") >= len(figures)
    assert list_complaints(browser) == []
    assert list_requests(browser) == []


def test_numbers_of_a_narrow_map_stay_within_their_cells(page):
    with open_browser(width=500) as narrow:
        open_page(narrow, page)
        draw(narrow)
        maps = narrow.execute_script(
            """
            return Bokeh.documents.map((document) => document.roots()[0])
              .flatMap((plot) => plot.renderers
                .filter(({ glyph }) => glyph.type === "Text")
                .map(({ glyph, data_source }) => [
                  plot.inner_width / plot.x_range.factors.length,
                  parseFloat(glyph.text_font_size.value),
                  Math.max(...data_source.data.text.map((text) => text.length)),
                ]));
            """
        )
    assert len(maps) > 1
    for cell, size, letters in maps:
        # A digit of a sans serif font is 0.56 of its size wide.
        assert size >= 8
        assert 0.56 * size * letters < cell


def test_a_plot_shows_the_cells_of_its_table(browser, page):
    open_page(browser, page)
    draw(browser)
    drawn = browser.execute_script(
        """
        return Bokeh.documents.flatMap((document) => document.roots()[0].renderers)
          .filter((renderer) => renderer.glyph.type === "Text")
          .map((renderer) => [...renderer.data_source.data.text]);
        """
    )
    tables = browser.execute_script(
        """
        const cells = (table) => [...table.querySelectorAll("td[class^=q]")];
        return [...document.querySelectorAll("article figure[data-plot=map] table")]
          .map((table) => cells(table).map((cell) => cell.firstChild.data));
        """
    )
    assert len(tables) == 2
    assert all(cells in drawn for cells in tables)


def test_filters_leave_what_was_asked_for(browser, page):
    open_page(browser, page)
    runs = "table.runs tbody tr"
    assert len(list_shown(browser, runs)) == 4
    shown = browser.find_element(By.ID, "shown")
    assert shown.text == "4 of 4 runs, 1 finding"

    box = browser.find_element(By.CSS_SELECTOR, "input[value=fail]")
    box.click()
    assert len(list_shown(browser, runs)) == 2
    assert list_shown(browser, "article.finding") == []
    assert shown.text == "2 of 4 runs, 0 findings"
    box.click()

    cluster = Select(browser.find_element(By.NAME, "cluster"))
    cluster.select_by_visible_text("mirrored:4")
    rows = list_shown(browser, runs)
    assert len(rows) == 2
    assert all("mirrored:4" in row for row in rows)
    assert list_shown(browser, "details.run") == ["run-2", "run-4"]
    code = Select(browser.find_element(By.NAME, "code"))
    code.select_by_visible_text("mean-instead-of-sum")
    assert list_shown(browser, "details.run") == ["run-2"]
    assert list_shown(browser, "article.finding") == [FINDING]

    browser.find_element(By.CSS_SELECTOR, "button[type=reset]").click()
    wait(browser, lambda _: len(list_shown(browser, runs)) == 4)
    text = browser.find_element(By.NAME, "text")
    text.send_keys("GPUs, have")
    assert list_shown(browser, "details.run") == ["run-4"]
    assert list_complaints(browser) == []


def test_a_link_opens_the_finding_and_from_there_the_run(browser, page):
    open_page(browser, page, f"#{FINDING}")
    top = "return document.getElementById(arguments[0]).getBoundingClientRect().top"
    assert -5 <= browser.execute_script(top, FINDING) < 60
    assert browser.switch_to.active_element.get_attribute("id") == FINDING
    run = browser.find_element(By.ID, "run-1")
    assert run.get_attribute("open") is None
    browser.find_element(By.CSS_SELECTOR, f"#{FINDING} a[href='#run-1']").click()
    wait(browser, lambda _: run.get_attribute("open") is not None)
    assert -5 <= browser.execute_script(top, "run-1") < 60

    # A link to what the filters hide shows it all the same.
    browser.find_element(By.CSS_SELECTOR, "input[value=fail]").click()
    assert list_shown(browser, "article.finding") == []
    browser.execute_script("location.hash = arguments[0]", FINDING)
    wait(browser, lambda _: list_shown(browser, "article.finding") == [FINDING])


def test_the_keyboard_suffices(browser, page):
    open_page(browser, page)
    keys = ActionChains(browser)
    focused = browser.switch_to

    keys.send_keys(Keys.TAB).perform()
    skip = focused.active_element
    assert skip.text == "Skip to the results"
    place = skip.get_attribute("hash")
    # The driver answers when a key was pressed, and the page may act on it later.
    keys.send_keys(Keys.ENTER).perform()
    wait(browser, lambda _: browser.execute_script("return location.hash") == place)
    keys.send_keys(Keys.TAB).perform()
    box = focused.active_element
    assert (box.get_attribute("name"), box.get_attribute("value")) == ("status", "fail")
    keys.send_keys(Keys.SPACE).perform()
    wait(browser, lambda _: list_shown(browser, "article.finding") == [])
    keys.send_keys(Keys.SPACE).perform()
    wait(browser, lambda _: list_shown(browser, "article.finding") == [FINDING])

    names = []
    for _ in range(40):
        keys.send_keys(Keys.TAB).perform()
        element = focused.active_element
        names.append(element.accessible_name.strip())
        if element.get_attribute("class") == "copy":
            break
    assert names[-1] == "Copy"
    assert names.count("fail") == 2  # in the matrix
    assert "Link to finding 1, mean-instead-of-sum" in names
    assert all(names)
    keys.send_keys(Keys.ENTER).perform()
    wait(browser, lambda _: focused.active_element.text in ("Copied", "Selected"))


def test_a_screen_reader_finds_regions_headings_and_plots(browser, page):
    open_page(browser, page)
    draw(browser)
    for role in ("main", "header", "nav", "form[role=search]"):
        assert len(browser.find_elements(By.CSS_SELECTOR, role)) == 1
    levels = [
        int(element.tag_name[1])
        for element in browser.find_elements(By.CSS_SELECTOR, "h1, h2, h3, h4")
    ]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    plots = browser.find_elements(By.CSS_SELECTOR, ".plot")
    assert all(plot.aria_role == "image" for plot in plots)
    assert all(plot.accessible_name.endswith("table below") for plot in plots)
    fields = browser.find_elements(By.CSS_SELECTOR, "input, select, button, summary")
    assert all(field.accessible_name for field in fields if field.is_displayed())


def test_odd_names_are_text_even_in_a_plot(browser, write):
    open_page(browser, write(make_odd_verdict()))
    figure = draw(browser)[0]
    browser.execute_script("arguments[0].scrollIntoView()", figure)
    plot = figure.find_element(By.CSS_SELECTOR, ".plot")
    size = plot.size
    # The first cell is wrong first, and its variable is markup.
    ActionChains(browser).move_to_element_with_offset(
        plot, -size["width"] // 20, -size["height"] // 2 + 50
    ).perform()
    wait(browser, lambda _: count_inside(browser, ".bk-Tooltip"))
    assert count_inside(browser, "img, b") == 0
    assert count_inside(browser, "script") == 4
    assert MARKUP in browser.find_element(By.TAG_NAME, "h1").text
    variables = Select(browser.find_element(By.CSS_SELECTOR, "label.norms select"))
    for number in range(len(ODD)):
        variables.select_by_index(number)
    time.sleep(0.2)
    assert list_complaints(browser) == []
    assert list_requests(browser) == []


def test_colours_follow_the_users_preference(browser, page):
    prefer(browser, "light")
    open_page(browser, page)
    draw(browser)
    light = browser.find_element(By.TAG_NAME, "body").value_of_css_property(
        "background-color"
    )
    fill = "return Bokeh.documents.at(-1).roots()[0].background_fill_color"
    before = browser.execute_script(fill)
    prefer(browser, "dark")
    try:
        dark = browser.find_element(By.TAG_NAME, "body").value_of_css_property(
            "background-color"
        )
        assert light != dark
        wait(browser, lambda _: browser.execute_script(fill) != before)
        assert list_complaints(browser) == []
    finally:
        prefer(browser, "light")


def test_without_javascript_all_tables_are_there(browser, page):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_page(browser, page, f"#{FINDING}")
        assert list_shown(browser, "#filters") == []
        assert list_shown(browser, "button") == []
        tables = list_shown(browser, "table")
        assert len(tables) == 8  # matrix, runs, environment, and five of the finding
        assert any("reduced_gradient" in table for table in tables)
        browser.find_element(By.CSS_SELECTOR, "#run-3 > summary").click()
        assert len(list_shown(browser, "table")) > 8
    finally:
        browser.execute_cdp_cmd(
            "Emulation.setScriptExecutionDisabled", {"value": False}
        )


@pytest.mark.nightly
def test_a_long_report_is_usable(browser, write):
    start_s = time.monotonic()
    open_page(browser, write(make_long_verdict(200)))
    text = browser.find_element(By.NAME, "text")
    text.send_keys("workload123-")
    assert list_shown(browser, "details.run") == ["run-124"]
    assert list_complaints(browser) == []
    assert time.monotonic() - start_s < 60


@pytest.mark.parametrize("width", [600, 1000])
def test_nothing_is_wider_than_the_window(page: Path, width: int) -> None:
    """A long command scrolls by itself, and takes no text out of sight."""
    with open_browser(width) as browser:
        open_page(browser, page)
        browser.execute_script(
            "document.querySelector('article.finding .command code').append("
            "' --more-of-it'.repeat(40))"
        )
        beyond = browser.execute_script(
            "const { scrollWidth, clientWidth } = document.documentElement;"
            "return scrollWidth - clientWidth;"
        )
        assert beyond <= 0
