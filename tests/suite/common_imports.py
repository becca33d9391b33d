"""Importing this module imports what most tests do. A warning is an error, as in a test that imports it."""

import warnings
from importlib import import_module

from tests.cluster.forked_program import LATE, PROGRAMS

#: What the programs do not import.
_OTHERS = "httpx hypothesis.strategies pytest_asyncio.plugin typer.testing"

with warnings.catch_warnings():
    warnings.simplefilter("error")
    for _name in (*PROGRAMS, *LATE.split(), *_OTHERS.split()):
        _package = import_module(_name)
        if hasattr(_package, "__path__") and _name in PROGRAMS:
            import_module(f"{_name}.__main__")
