"""The public names of errors."""

import importlib
import inspect
import subprocess
import sys

import oncelog
from oncelog.core import effect_errors as of_effects
from oncelog.core import errors as defined
from oncelog.core import format_errors as of_formats
from oncelog.core import outbox_errors as of_the_outbox


def test_every_error_is_imported_from_the_public_module() -> None:
    """`from oncelog.errors import ProducerFenced`, as users write it: the same classes, and all of them."""
    public = importlib.import_module("oncelog.errors")
    errors = {
        name: value
        for module in (defined, of_effects, of_formats, of_the_outbox)
        for name, value in inspect.getmembers(module, inspect.isclass)
        if issubclass(value, defined.OncelogError)
    }
    assert {name: getattr(public, name) for name in public.__all__} == errors
    assert oncelog.errors is public


def test_error_is_imported_by_its_name_in_a_new_process() -> None:
    """Imports of a test before this one could hide that the module is none."""
    words = "from oncelog.errors import ProducerFenced as P; import oncelog; assert oncelog.errors.ProducerFenced is P"
    subprocess.run([sys.executable, "-c", words], check=True, timeout=60)
