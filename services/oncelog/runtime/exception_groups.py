"""Exception groups, for programs that report one error. Imported by the command line, so without asyncio."""

from collections.abc import Iterator


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """The errors in an exception group, or the error itself. Task groups wrap even a single error."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves_of(inner)
    else:
        yield error
