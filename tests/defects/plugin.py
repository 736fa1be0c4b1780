"""A pytest plug-in that plants one defect: `HARNESS_DEFECT=NAME pytest -p tests.defects.plugin`."""

import os

import pytest


def pytest_configure(config):
    from tests.defects.defects import DEFECTS

    patch = pytest.MonkeyPatch()
    DEFECTS[os.environ["HARNESS_DEFECT"]].patch(patch)
    config.add_cleanup(patch.undo)
