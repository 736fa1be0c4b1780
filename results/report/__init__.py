"""The report of a store: what its page and its text say, and how they are drawn.

`content` decides what is said, from the answers of `results.aggregate`; `plots` turns numbers into
the geometry of drawings; `page` renders both with Jinja2, which escapes everything; `summary` is
the text for a terminal.
"""
