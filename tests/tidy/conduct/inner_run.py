"""A run of pytest inside a test: one file of tests, in a process of its own, with the conftest of all tests."""

import os
import subprocess
import sys
from pathlib import Path

from oncelog.testing.local_cluster import without_settings
from tests.tidy.source import ROOT

TIMEOUT_S = 180.0


def run_pytest(folder: Path, text: str, *more: str) -> "subprocess.CompletedProcess[str]":
    """Run the tests of this text to their end. folder: for their file. more: options."""
    file = folder / "test_inner.py"
    file.write_text(text)
    options = ["-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest", "-p", "no:cacheprovider", *more]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(file)],
        cwd=ROOT,
        env=without_settings(os.environ),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
