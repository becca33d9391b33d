"""A session needs Java; errors name what is missing."""

from pathlib import Path

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog_spark.session import check_java, java_version


@pytest.mark.parametrize(
    ("said", "version"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "1.8.0_292"', 8), ('openjdk version "21"', 21),
     ('openjdk version "24-ea" 2025', 24), ("no such thing", None)],
)  # fmt: skip
def test_the_version_of_java_is_read(said: str, version: int | None) -> None:
    """Old versions are numbered differently."""
    assert java_version(said) == version


def java_that_says(home: Path, said: str) -> None:
    (home / "bin").mkdir()
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)


def test_a_missing_java_is_reported_with_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark itself would only report that a gateway exited."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidArgument, match=f"Java 17 or later.*none found at {tmp_path}"):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidArgument, match="none found"):
        check_java()


@pytest.mark.parametrize(("said", "good"), [('openjdk version "11.0.2"', False), ("", False), ('version "17"', True)])
def test_a_java_that_is_too_old_is_reported_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, good: bool
) -> None:
    """And an empty output is an error, too."""
    java_that_says(tmp_path, said)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if good:
        check_java()
        return
    with pytest.raises(InvalidArgument, match="prints: " + (said or "nothing")):
        check_java()
