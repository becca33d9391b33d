"""File descriptors: the standard streams of our programs, and the limit of the process.

Standard streams, and what happens where they are full or closed:

    @program
    def main() -> int: ...

Rules
- A descriptor from 0 to 2 that is closed is opened before anything else. Otherwise the next socket or file gets its
  number: what is printed goes into it, and uvloop, which never closes such a number, ends the process with SIGABRT.
- What was to be written to standard output and was not is an error, as in other programs of Unix: OSError with
  "standard output" as its file name. Commands print it as one sentence, with exit code 1.
- What cannot be written to standard error is dropped: nobody can be told.
- An announcement is not what a program is for: a service goes on without it.

The limit: a process without free descriptors can neither accept connections nor open files. Therefore the soft limit is
raised to the hard limit at the start, and connections get at most half of it. Files, channels to other processes and
the journal of a storage node use the rest.
"""

import io
import logging
import os
import resource
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, ParamSpec

logger = logging.getLogger(__name__)
P = ParamSpec("P")
OUTPUT = "standard output"
_FAILED = 1
#: {descriptor: how it is opened if it is closed}. Reading 0 and writing 1 then fail with EBADF, as they would have.
_OPENED_AS = {0: os.O_WRONLY, 1: os.O_RDONLY, 2: os.O_WRONLY}


def fill_descriptors() -> None:
    """Open those of 0 to 2 that are closed, so that nothing else gets their numbers."""
    for descriptor, flags in _OPENED_AS.items():
        try:
            os.fstat(descriptor)
        except OSError:
            # All lower numbers are taken, so this one is given out.
            os.set_inheritable(os.open(os.devnull, flags), True)


def program(main: Callable[P, object]) -> Callable[P, NoReturn]:
    """Decorate the main function of a program: its streams are guarded, and it ends with SystemExit. An OSError that it
    raises is printed as one sentence."""

    @wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> NoReturn:
        guard_streams()
        code: Any = None
        try:
            try:
                code = main(*args, **kwargs)
            except SystemExit as end:
                code = end.code
            sys.stdout.flush()
        except OSError as error:
            discard_output()
            print(f"error: {sentence_of(error)}", file=sys.stderr)
            code = code or _FAILED
        raise SystemExit(code)

    return run


def guard_streams() -> None:
    """Open what is closed, and let standard output name itself in its errors."""
    fill_descriptors()
    sys.stdout = _text(_Output(1, "wb", closefd=False), sys.stdout)
    sys.stderr = _text(_Errors(2, "wb", closefd=False), sys.stderr, errors="backslashreplace", line_buffering=True)


def announce(text: str) -> str:
    """Print a line that nobody may need. Returns "", or why it cannot be written: nothing is printed any more then."""
    try:
        print(text, flush=True)
    except OSError as error:
        discard_output()
        return sentence_of(error)
    return ""


def discard_output() -> None:
    """Let what is still to be written to standard output, and all that follows, go nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def sentence_of(error: OSError) -> str:
    """What failed, and where."""
    place = f": {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else ""
    return f"{error.strerror}{place}" if error.strerror and place else str(error) or type(error).__name__


class _Output(io.FileIO):
    """Errors of writing name the stream."""

    def write(self, data: Any, /) -> Any:
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, OUTPUT) from error


class _Errors(io.FileIO):
    """Drops what cannot be written."""

    def write(self, data: Any, /) -> Any:
        try:
            written = super().write(data)
        except OSError:
            written = None
        return memoryview(data).nbytes if written is None else written


def _text(raw: io.FileIO, former: Any, *, errors: str = "strict", line_buffering: bool = False) -> io.TextIOWrapper:
    """A stream of text with the properties of the former one, which is None where the descriptor was closed."""
    if former is None:
        return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", errors, line_buffering=line_buffering)
    former.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        former.encoding,
        former.errors,
        line_buffering=former.line_buffering,
        write_through=former.write_through,
    )


# --- the limit ----------------------------------------------------------------------------------------------------


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one; returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            logger.warning("cannot raise the limit of open files, it stays at %d: %s", soft, error)
            return soft
    return hard


def connections_within(wanted: int) -> int:
    """`wanted`, or half of the process's descriptors if that is less."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft // 2))
    if allowed < wanted:
        fields = {"wanted": wanted, "allowed": allowed, "open_files_max": soft}
        logger.warning(
            "the connection limit is reduced, because the limit of open files is low", extra={"fields": fields}
        )
    return allowed
