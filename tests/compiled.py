"""Compiled modules, where Python is told not to write them beside their sources.

The tests start several hundred processes, and each would compile 250 modules: a third of the CPU that its start needs.
They are kept in .cache.
"""

import os
import sys
from pathlib import Path


def keep_compiled() -> None:
    """In this process and in those that it starts. What was imported before was compiled."""
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode = False
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parents[1] / ".cache/bytecode")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
