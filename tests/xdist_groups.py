"""`--dist loadgroup` with the versions we have: tests of one `xdist_group` on one worker.

pytest-xdist 3.8 tells the groups to its scheduler by a suffix of the node id, which it writes into
`Item._nodeid`. pytest 9.2 keeps the id in `Item._id` and never reads the other, so groups were
silently ignored: tests that must not run at once did. This writes the suffix where it is read.
"""

import pytest


@pytest.hookimpl(trylast=True)  # after xdist's own attempt, which may work again some day
def pytest_collection_modifyitems(config, items):
    """Write the groups into the ids, in workers of a run with `--dist loadgroup`."""
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        marks = item.iter_markers("xdist_group")
        groups = {str((*mark.args, mark.kwargs.get("name", "default"))[0]) for mark in marks}
        suffix = f"@{'_'.join(sorted(groups))}"
        if groups and not item.nodeid.endswith(suffix):
            item._id = type(item._id).parse(item.nodeid + suffix)
