"""What tests of pages share."""

import pytest

from results.page import PageReporter
from tests.browser_support import browser, browser_page, browser_tab  # noqa: F401 - fixtures
from tests.results.page.runs import small_run, stale_read, write_run


@pytest.fixture(scope="module")
def made_page(tmp_path_factory):
    """The page of `small_run`, which is invalid; tests only read it."""
    history = small_run()
    folder = tmp_path_factory.mktemp("made")
    return PageReporter().write(write_run(folder, history, [stale_read(history)]))


@pytest.fixture
def open_page(browser_page, made_page):  # noqa: F811
    """The same page, opened and drawn."""
    browser_page.open(made_page)
    browser_page.wait_for_selector("html[data-ready]")
    return browser_page
