"""The browser, for all who look at pages."""

from tests.browser_support import (  # noqa: F401 - fixtures
    browser,
    browser_page,
    browser_tab,
    chromium,
)
