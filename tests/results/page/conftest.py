"""What tests of pages share."""

import pytest

from results.page import PageReporter
from tests.browser_support import browser, browser_page, browser_tab  # noqa: F401 - fixtures
from tests.results.page.runs import small_run, stale_read, write_run


@pytest.fixture
def made_page(tmp_path):
    """The page of `small_run`, which is invalid."""
    history = small_run()
    return PageReporter().write(write_run(tmp_path, history, [stale_read(history)]))


@pytest.fixture
def open_page(browser_page, made_page):  # noqa: F811
    """The same page, opened and drawn."""
    browser_page.open(made_page)
    browser_page.wait_for_selector("html[data-ready]")
    return browser_page
