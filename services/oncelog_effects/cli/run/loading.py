"""Finds the functions that a command names in the modules of the application."""

import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import oncelog
from oncelog.core.errors import InvalidArgument
from oncelog.runtime.application_errors import reason_of
from oncelog_effects.processes import Process

_OWN = str(Path(oncelog.__file__).parent)


def load(name: str) -> Process[Any]:
    """The function `module:name`. The module is searched in the current directory first. Raises InvalidArgument."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise InvalidArgument(f"{name!r} does not name a function: give MODULE:NAME, as shop:book", field="functions")
    module = _imported(module_name)
    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Process):
        made = [each for each, value in vars(module).items() if isinstance(value, Process)]
        here = f"it has {', '.join(made)}" if made else "it has none"
        raise InvalidArgument(
            f"{attribute} of module {module_name} is not a function that @oncelog.process has made: {here}",
            field="functions",
        )
    return found


def _imported(name: str) -> ModuleType:
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _broken(name, error) from error
        raise InvalidArgument(
            f"there is no module {name} in {directory}, and none is installed: run the command where the module is",
            field="functions",
        ) from error
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> InvalidArgument:
    """With the place in the application: its error is not one of this command."""
    frames = traceback.extract_tb(error.__traceback__)
    others = (frame for frame in reversed(frames) if "importlib" not in frame.filename)
    last = next((frame for frame in others if not frame.filename.startswith(_OWN)), None)
    place = "" if last is None else f" ({last.filename}, line {last.lineno})"
    return InvalidArgument(f"module {name} cannot be imported: {reason_of(error)}{place}", field="functions")
