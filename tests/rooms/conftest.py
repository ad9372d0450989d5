"""Every test of a room runs on virtual time: what waits for a minute is over at once."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of this folder on the virtual clock."""
    here = __file__.rpartition("/")[0]
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.looptime(start=1000.0))
