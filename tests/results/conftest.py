"""The browser that all tests of pages share."""

from tests.support.browser import (  # noqa: F401 - fixtures
    browser,
    browser_page,
    browser_tab,
    chromium,
)
