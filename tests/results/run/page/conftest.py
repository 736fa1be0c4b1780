"""Fixtures shared by tests of pages."""

import pytest

from results.run.page import PageReporter
from tests.results.run.page.runs import small_run, stale_read, write_run
from tests.support.browser import Tab

AS_AT_FIRST = """() => {
  const { page, view, filter } = harnessPage;
  const told = () => JSON.stringify([
    view.from, view.to, page.selected, page.moment, page.fact, page.colourBy, page.showRpc,
    filter, scrollY, document.activeElement.id, document.documentElement.dataset.theme,
    document.getElementById("detail").textContent, document.getElementById("count").textContent,
  ]);
  window.toldAtFirst ??= told();
  const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", { key }));
  document.activeElement.blur();
  press("x");
  press("Escape");
  press("a");
  page.select(page.blamed);
  scrollTo(0, 0);
  return [told(), window.toldAtFirst];
}"""
"""A script that resets the page to its first view; returns the status now and at first."""
DRAWN = "() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"


@pytest.fixture(scope="session")
def made_page(tmp_path_factory):
    """Build the page of `small_run`, which is invalid; tests only read it."""
    history = small_run()
    folder = tmp_path_factory.mktemp("made")
    return PageReporter().write(write_run(folder, history, [stale_read(history)]))


@pytest.fixture
def open_page(browser_page, made_page):
    """Open the page in a separate tab, for tests that point at it or change its look."""
    browser_page.open(made_page)
    browser_page.wait_for_selector("html[data-ready]")
    return browser_page


@pytest.fixture(scope="session")
def kept_tab(chromium):
    return Tab(chromium)


@pytest.fixture
def shared_page(browser, kept_tab, made_page):
    """Load the page once for all tests that select, filter and move; each test undoes its changes.

    Loading a page costs ten times as much as such a test.
    """
    page = kept_tab.lend()
    if page.url == "about:blank":
        page.open(made_page)
        page.wait_for_selector("html[data-ready]")
    now, first = page.evaluate(AS_AT_FIRST)
    assert now == first
    yield page
    page.evaluate(f"async () => {{ await ({DRAWN})(); }}")  # a late drawing may log an error, too
    page.hear_no_more()
    assert page.unexpected() == [], page.problems
