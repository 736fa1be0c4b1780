"""The browser for all tests of pages."""

from tests.support.browser import (  # noqa: F401 - fixtures
    browser,
    browser_page,
    browser_tab,
    chromium,
)
