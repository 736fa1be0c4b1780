"""The report of a store: what its page and its text say, and how they are drawn.

`content` decides what is said, from the answers of `results.questions.aggregate`; `plots` turns
numbers into the geometry of drawings; `page` renders both with Jinja2, which escapes everything;
`summary` is the text for a terminal.
"""

from typing import Final

__all__ = ["REPORT_FOLDER"]

REPORT_FOLDER: Final = ".report"
"""The folder of a report below what it reports on, where everybody looks for it."""
