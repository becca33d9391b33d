"""What a drill says of records that notes have as they are."""

import pytest

from oncelog.core.ids import Incarnation
from oncelog.core.rebuild.result import Rebuilt
from oncelog.metadata.restoring.drill import differences
from oncelog.metadata.restoring.new_tree import NewTree
from oncelog.metadata_store.session import paths

COOKIE = paths.storage_cookie(Incarnation("a" * 32))
NOTHING = Rebuilt({}, {}, (), 0)


def differs(written: dict[str, bytes], live: dict[str, bytes]) -> list[str]:
    tree = NewTree()
    for folder in paths.FOLDERS:
        tree.put(folder)
    for path, value in written.items():
        tree.put(path, value)
    return differences(NOTHING, tree, live)


@pytest.mark.parametrize("path", [COOKIE, paths.KEY_DATASET, paths.CLUSTER_POLICIES, f"{paths.TOMBSTONES}/{'b' * 32}"])
def test_noted_record_that_differs_is_told(path: str) -> None:
    """A storage node that would count again, or keys of a data set that is not valid any more, among them."""
    assert differs({path: b"1"}, {path: b"1"}) == []
    assert differs({path: b"1"}, {path: b"2"}) == [f"{path}: it would be another one"]
    assert differs({}, {path: b"2"}) == [f"{path}: no storage node has noted it, so it would be missing"]
    assert differs({path: b"1"}, {}) == [f"{path}: it would return; it is not there"]
