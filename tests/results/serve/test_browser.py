"""The pages in a real browser, used by mouse and keyboard, without console messages."""

import os
from pathlib import Path

import pytest

from tests.support.browser import BROWSER_MARKS, BrowserPage, over_network

pytestmark = BROWSER_MARKS


def shot(page, name):
    """Save a screenshot to the folder HARNESS_SCREENSHOTS, for people."""
    folder = os.environ.get("HARNESS_SCREENSHOTS")
    if folder:
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


def rows_of(page):
    links = page.locator("table.runs tbody tr a.open").all()
    return [link.get_attribute("href").split("/")[-2] for link in links]


@over_network
def test_from_the_list_through_filter_run_and_comparison_to_the_matrix(served, browser_page):
    page = browser_page
    page.open(served.url + "/")
    assert page.locator("#matching").inner_text() == "12"
    assert page.locator("#compare-button").is_disabled()
    page.locator("select[name=label]").select_option("v2")
    page.follow(page.get_by_role("button", name="Filter"))
    assert rows_of(page) == ["a4", "a3"]
    assert page.locator("select[name=label]").input_value() == "v2"
    page.follow(page.get_by_role("link", name="when (UTC)"))
    assert rows_of(page) == ["a3", "a4"]

    page.follow(page.locator("a.open[href='/run/alpha/a3/']"))
    assert "a3" in page.locator("h1").inner_text()
    assert page.locator("details.check[open]").count() == 1
    shot(page, "run")
    page.follow(page.get_by_role("link", name="alpha", exact=True))
    assert len(rows_of(page)) == 4

    for run in ("alpha/a1", "alpha/a3", "alpha/a2"):  # ticking a third run removes the first one
        page.locator(f"input[value='{run}']").check()
    assert not page.locator("input[value='alpha/a1']").is_checked()
    page.follow(page.locator("#compare-button"))
    assert page.locator("section.card").count() == 2
    cells = page.locator("table.diff tbody tr", has_text="bugs").locator("td").all_inner_texts()
    assert cells == ['["NO-LEASE"]', "[]"]  # in the order of the list of runs
    assert page.locator("figure.plot rect.ok").count() > 10
    shot(page, "compare")

    page.follow(page.get_by_role("link", name="Matrix"))
    page.locator("select[name=across]").select_option("label")
    page.follow(page.get_by_role("button", name="Show"))
    cell = page.locator("table.matrix td.cell a", has_text="1 invalid").first
    page.follow(cell)
    assert page.url.startswith(served.url + "/?")
    assert "a3" in rows_of(page)
    page.follow(page.get_by_role("link", name="as trends"))
    assert page.locator("figure.trend").count() == 3  # each setting has one point
    page.follow(page.locator("a.chip", has_text="label"))
    assert page.locator("figure.trend").count() == 5
    shot(page, "trends")


@over_network
def test_keys_alone_are_enough(served, browser_page):
    page = browser_page
    page.open(served.url + "/?name=alpha&sort=seed")
    for key in "jxjjxk":
        page.keyboard.press(key)
    assert page.locator("tr.here a.open").get_attribute("href") == "/run/alpha/a2/"
    page.keyboard.press("c")
    page.wait_for_url("**/compare?**")
    assert page.locator("section.card a").all_inner_texts() == ["alpha/a1", "alpha/a4"]
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url(served.url + "/")
    page.keyboard.press("/")
    page.keyboard.type("lease j")  # in a field, letters are not commands
    assert page.locator("#search").input_value() == "lease j"
    page.locator("#search").fill("lease")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=lease**")
    assert rows_of(page) == ["a3"]
    page.locator("body").click(position={"x": 5, "y": 300})
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/run/alpha/a3/")


@over_network
def test_hostile_runs_execute_nothing(served, browser_page):
    page = browser_page  # the page fails the test if a dialog opens or an image does not load
    for path in (
        "/?name=beta",
        "/run/beta/b3/",
        "/compare?run=beta/b3&run=alpha/a1",
        "/matrix?down=bug&across=label",
        "/trends?by=nemeses",
        "/?name=poison",
        "/run/poison/torn/",
        "/run/poison/rotten/",
    ):
        page.open(served.url + path)
        assert page.locator("script:not([src])").count() == 0
        assert page.locator("img").count() == 0


@over_network
def test_the_page_of_a_run_works_in_its_sandbox(served, browser_page):
    page = browser_page
    page.open(served.url + "/run/alpha/a3/")
    page.follow(page.get_by_role("link", name="Timeline"))
    assert page.url.endswith("/run/alpha/a3/report.html")
    assert "a3" in page.content()
    assert page.evaluate("self.origin") == "null"
    shot(page, "report")


@over_network
def test_no_page_is_wider_than_the_window(served, browser_page):
    page = browser_page
    for path in (
        "/", "/matrix", "/trends", "/run/beta/b3/", "/compare?run=beta/b3&run=alpha/a1",
        "/compare?label=v1&label=v2",
    ):  # fmt: skip
        page.open(served.url + path)
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            if path == "/":
                table = page.locator(".scroll:has(> .list)")
                assert table.evaluate("box => box.scrollWidth <= box.clientWidth")


@over_network
def test_labels_are_compared_from_the_trends(served, browser_page):
    page = browser_page
    page.open(served.url + "/trends?by=day&name=alpha")
    first, second = page.locator("select[name=label]").all()
    first.select_option("v2")
    second.select_option("v1")
    page.follow(page.get_by_role("button", name="Compare labels"))
    assert page.locator("section.card h2 a").all_inner_texts() == ["v2", "v1"]
    assert page.locator(".chip").all_inner_texts() == ["name alpha"]
    shot(page, "labels")
    page.follow(page.get_by_role("link", name="swap A and B"))
    assert page.locator("section.card h2 a").all_inner_texts() == ["v1", "v2"]
    page.follow(page.locator("table.labels tbody th a").first)
    assert len(rows_of(page)) == 3


@pytest.mark.lake
@over_network
def test_a_lake_from_the_list_to_the_page_of_a_run(lake_served, browser_page):
    page = browser_page
    page.open(lake_served.url + "/")
    shot(page, "lake")
    page.follow(page.locator("table.failures tbody a").first)
    page.follow(page.locator("td[title*='/a5@'] a.open"))
    assert "alpha / a5@" in page.locator("h1").inner_text()
    assert page.locator("figure.plot rect.ok").count() == 10
    assert "faults injected" in page.locator("dl").inner_text()
    page.follow(page.get_by_role("link", name="Timeline"))
    assert page.evaluate("self.origin") == "null"
    page.open(lake_served.url + "/trends?by=day")
    shot(page, "lake-trends")
    page.follow(page.locator("table.totals tbody tr", has_text="2026-11-23").locator("a.open"))
    assert page.locator("#matching").inner_text() == "2"


@over_network
def test_without_script_a_comparison_is_still_possible(served, browser):
    context = browser.new_context(java_script_enabled=False)
    try:
        page = BrowserPage(context.new_page())
        page.open(served.url + "/?name=alpha")
        page.locator("input[value='alpha/a1']").check()
        page.locator("input[value='alpha/a2']").check()
        page.follow(page.locator("#compare-button"))
        assert page.locator("section.card").count() == 2
    finally:
        context.close()
