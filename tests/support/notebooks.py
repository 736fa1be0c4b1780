"""Executes the cells of a notebook in this process."""

import ast
import contextlib
import io
import json


def code_cells(path):
    return [
        cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"
    ]


def run_cells(path):
    """Run the code cells; return the output of each: text, columns and HTML."""
    names = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(path)):
        body = ast.parse("".join(cell["source"])).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        printed, shown = io.StringIO(), None
        with contextlib.redirect_stdout(printed):
            exec(compile(ast.Module(body, []), f"{path.name}:{number}", "exec"), names)
            if last is not None:
                expression = ast.Expression(last.value)
                shown = eval(compile(expression, f"{path.name}:{number}", "eval"), names)
        draw = getattr(shown, "_repr_html_", None)
        yield {
            "stream": printed.getvalue(),
            "text/plain": "" if shown is None else repr(shown),
            "columns": [str(name) for name in getattr(shown, "columns", ())],
            "text/html": draw() if draw is not None else "",
        }
