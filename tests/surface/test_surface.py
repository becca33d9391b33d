"""The recorder runs, and records the same tree twice as the same text."""

from functools import partial
from pathlib import Path

import pytest

from tests.surface.__main__ import QUICK, record, traces

#: Without hundreds of help texts, and without the metrics, for which every file is parsed.
PARTS = {name: part for name, part in QUICK.items() if name not in {"help", "metrics"}} | {"traces": partial(traces, 1)}


def test_recordings_of_one_tree_are_equal(tmp_path: Path) -> None:
    """A difference between two recordings is a change of the tree."""
    first, second = tmp_path / "first", tmp_path / "second"
    for directory in (first, second):
        record(directory, PARTS)
    paths = sorted(path.relative_to(first) for path in first.rglob("*.*"))
    assert len(paths) > 15
    assert paths == sorted(path.relative_to(second) for path in second.rglob("*.*"))
    for path in paths:
        assert (first / path).read_text() == (second / path).read_text(), path
        assert len((first / path).read_text().splitlines()) > 0, path


def test_recording_is_never_overwritten(tmp_path: Path) -> None:
    """A recording of two trees in one directory would hide their differences."""
    parts = {"errors": QUICK["errors"]}
    record(tmp_path, parts)
    with pytest.raises(FileExistsError):
        record(tmp_path, parts)
