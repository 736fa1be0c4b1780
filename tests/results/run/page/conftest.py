"""What tests of pages share."""

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
"""Brings the page back to its first view; gives what it says then, and what it said at first."""
DRAWN = "() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"


@pytest.fixture(scope="session")
def made_page(tmp_path_factory):
    """The page of `small_run`, which is invalid; tests only read it."""
    history = small_run()
    folder = tmp_path_factory.mktemp("made")
    return PageReporter().write(write_run(folder, history, [stale_read(history)]))


@pytest.fixture
def open_page(browser_page, made_page):
    """The same page, opened and drawn: for tests that point at it, or change how it looks."""
    browser_page.open(made_page)
    browser_page.wait_for_selector("html[data-ready]")
    return browser_page


@pytest.fixture(scope="session")
def kept_tab(chromium):
    """Where the page stays that is loaded once."""
    return Tab(chromium)


@pytest.fixture
def shared_page(browser, kept_tab, made_page):
    """The same page, loaded once: for tests that select, filter and move, all of which is undone.

    A page costs ten times what such a test does with it.
    """
    page = kept_tab.lend()
    if page.url == "about:blank":
        page.open(made_page)
        page.wait_for_selector("html[data-ready]")
    now, first = page.evaluate(AS_AT_FIRST)
    assert now == first
    yield page
    page.evaluate(f"async () => {{ await ({DRAWN})(); }}")  # what is drawn late may complain, too
    page.hear_no_more()
    assert page.unexpected() == [], page.problems
