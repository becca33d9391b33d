"""The clusters that these tests start need little of the machine's disk."""

from collections.abc import Iterator

import pytest

from oncelog.cli.standalone.cluster_plan import LIGHT_SETTINGS


@pytest.fixture(scope="package", autouse=True)
def small_segments() -> Iterator[None]:
    """The lab gives its clusters the settings of its user; by default three storage nodes take a gigabyte at once."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in LIGHT_SETTINGS.items():
            patch.setenv(name, value)
        yield
