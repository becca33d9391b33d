"""Parameters of commands, as typer reads them: a command's signature may be made of tables and dataclasses."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, fields
from typing import Any, get_type_hints


def option_parameter(name: str, annotation: object, default: object = inspect.Parameter.empty) -> inspect.Parameter:
    """Without a default the option is required."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def parameters_of(options: type) -> list[inspect.Parameter]:
    """The fields of a dataclass, in order. One without a default is a required option."""
    annotations = get_type_hints(options, include_extras=True)
    required = inspect.Parameter.empty
    return [
        option_parameter(field.name, annotations[field.name], required if field.default is MISSING else field.default)
        for field in fields(options)
    ]


def own_parameters(command: Callable[..., object]) -> list[inspect.Parameter]:
    """The parameters of a function. Typer reads annotations, so they are resolved here, in the function's module."""
    hints = get_type_hints(command, include_extras=True)
    own = inspect.signature(command).parameters.values()
    return [option_parameter(each.name, hints.get(each.name), each.default) for each in own]


def sign(command: Callable[..., object], parameters: Iterable[inspect.Parameter]) -> None:
    """Give the command these parameters."""
    listed = list(parameters)
    command.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in listed}


def spread_parameter(
    command: Callable[..., None],
    name: str,
    parameters: Sequence[inspect.Parameter],
    gather: Callable[[dict[str, Any]], object],
) -> Callable[..., None]:
    """The command with other parameters in the place of `name`, which gets what `gather` makes of their values."""

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        given = {parameter.name: arguments.pop(parameter.name) for parameter in parameters}
        command(**arguments, **{name: gather(given)})

    own = own_parameters(command)
    at = next(number for number, parameter in enumerate(own) if parameter.name == name)
    sign(run, [*own[:at], *parameters, *own[at + 1 :]])
    return run
