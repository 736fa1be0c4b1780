"""The report of a store, as a page and as text.

`content` composes the sections from the answers of `results.questions.aggregate`; `plots` turns
numbers into the geometry of drawings; `page` renders both with Jinja2, which escapes everything;
`summary` is the text for a terminal.
"""

from typing import Final

__all__ = ["REPORT_FOLDER"]

REPORT_FOLDER: Final = ".report"
"""The name of the folder in a store or lake in which other commands look for its report."""
