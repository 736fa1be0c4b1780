"""Makes the report of a store or a lake, as a page and as text.

`results.questions.aggregate` computes the answers. `content` composes the page's sections from
them. `plots` computes the positions in drawings. `page` renders sections and drawings with Jinja2,
which escapes everything. `summary` makes the text for a terminal.
"""

from typing import Final

__all__ = ["REPORT_FOLDER"]

REPORT_FOLDER: Final = ".report"
"""The folder in a store or lake in which other commands look for its report."""
