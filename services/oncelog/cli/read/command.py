"""`oncelog read`: options and execution."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console

from oncelog.cli.connection import Connection, takes_connection
from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.options import LOCAL_TIME, MaxMessageBytesOption, TimeoutOption
from oncelog.cli.running import run_command

if TYPE_CHECKING:
    from oncelog.cli.read.lines import Lines
    from oncelog.cli.read.skips import GapReport, SkipReport
    from oncelog.cli.read.told import WaitingHint
    from oncelog.client.client import AsyncClient
    from oncelog.client.reading.reader import AsyncReader
    from oncelog.client.reading.search import Wanted
    from oncelog.client.values.messages import MessageBatch
    from oncelog.core.errors import OncelogError


#: A topic that moves to another owner is read on before this time.
_TOLD_AFTER_S = 5.0


class Form(StrEnum):
    RAW = "raw"
    JSON = "json"


class CorruptChoice(StrEnum):
    RAISE = "raise"
    SKIP = "skip"


class EncryptedChoice(StrEnum):
    RAISE = "raise"
    PASS = "pass"  # noqa: S105  # no password


EncryptedOption = Annotated[
    EncryptedChoice,
    typer.Option(
        "--on-encrypted",
        help="Encrypted messages: raise an error, or print them with -o json.",
    ),
]


def check_encrypted(on_encrypted: EncryptedChoice, form: Form) -> None:
    """Raises BadParameter where an encrypted message would be printed without all that it has."""
    if on_encrypted is EncryptedChoice.PASS and form is not Form.JSON:
        raise typer.BadParameter("--on-encrypted pass needs -o json: an encrypted message has no value to print")


_HELP = f"""Print the stored messages of a topic, and with --follow also new ones.

\b
  oncelog read flights -o json --limit 3
  oncelog read flights --from 2026-01-31T12:00:00+01:00 --follow
  oncelog read orders --filter '.customer == "Ann"' -n 10 --from-end
  oncelog read orders --key table-4 --producer-name till-1 -f '%i %k %v'

Reading acknowledges nothing: to continue later, pass the last message_id to --from. `oncelog help json` has the fields
of -o json. Messages that were trimmed or given up, and with --on-corrupt skip those that cannot be read, are reported
on standard error, and with -o json also as an object.

--key, --text, --filter and --producer-name print only messages that match all of them; standard error says how many
messages the command has searched. A filter is a path in a JSON value, with ==, !=, <, <=, >, >= or contains and a JSON
value; a path alone matches if there is such a value. In a format, %v is the value, %k the key, %i the index, %n the
producer name, %s the sequence id, %m the message id, %t the publish time, %p the properties.

{EXIT_CODES}"""


@takes_connection
def read(
    topic: Annotated[str, typer.Argument(help="Topic: name, or tenant/namespace/name.")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="Start position: earliest, latest, a message id (starts after it), or an ISO time (starts with the "
            f"first message stored at or after it). {LOCAL_TIME}",
        ),
    ] = "earliest",
    from_index: Annotated[
        int | None,
        typer.Option("--from-index", min=0, help="Start with the message of this index. Not with --from."),
    ] = None,
    inclusive: Annotated[bool, typer.Option("--inclusive", help="Start with the message of --from itself.")] = False,
    from_end: Annotated[
        bool, typer.Option("--from-end", help="Print the last messages of the topic, as many as --limit says.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-F", help="Wait for new messages until Ctrl-C.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Maximum number of messages. By default all are printed.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only messages with this key.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="Only messages with this text in their value.")] = None,
    condition: Annotated[
        str | None, typer.Option("--filter", help="Only messages whose JSON value matches it, such as '.order == 17'.")
    ] = None,
    producer_name: Annotated[
        str | None, typer.Option("--producer-name", help="Only messages of this producer.")
    ] = None,
    template: Annotated[
        str | None, typer.Option("--format", "-f", help="A line for each message, such as '%i %k %v'.")
    ] = None,
    form: Annotated[
        Form, typer.Option("-o", "--output", help="Output format: raw (values), or json (all fields).")
    ] = Form.RAW,
    on_corrupt: Annotated[
        CorruptChoice, typer.Option("--on-corrupt", help="If an entry cannot be read: raise an error, or skip it.")
    ] = CorruptChoice.RAISE,
    on_encrypted: EncryptedOption = EncryptedChoice.RAISE,
    max_message_bytes: MaxMessageBytesOption = None,
    *,
    connection: Connection,
    timeout: TimeoutOption = 30.0,
) -> None:
    if from_index is not None and start != "earliest":
        raise typer.BadParameter("--from and --from-index cannot be combined: use one of them")
    if template is not None and form is not Form.RAW:
        raise typer.BadParameter("--format and -o cannot be combined: use one of them")
    if from_end and (limit is None or follow or start != "earliest" or from_index is not None):
        raise typer.BadParameter("--from-end needs --limit, and is not combined with --from, --from-index and --follow")
    check_encrypted(on_encrypted, form)
    errors = Console(stderr=True, highlight=False)

    async def run() -> Exit:
        from oncelog.cli.read.lines import json_lines, parse_template, raw_lines
        from oncelog.cli.read.skips import GapReport, SkipReport, WaitingReport
        from oncelog.cli.read.start import parse_start
        from oncelog.cli.read.told import WaitingHint, is_missing, tell_created
        from oncelog.client.reading.search import wanted_of
        from oncelog.core.errors import TopicNotFound
        from oncelog.core.formats.message_id import Index
        from oncelog.core.names import parse_topic

        begin = parse_start(start) if from_index is None else Index(from_index)
        wanted = wanted_of(key, text, condition, producer_name)
        lines = parse_template(template) if template is not None else json_lines if form is Form.JSON else raw_lines
        async with await connection.connect(timeout, max_message_bytes=max_message_bytes) as client:
            missing = await is_missing(client, topic, timeout)
            if missing and not follow:
                raise TopicNotFound(f"topic {parse_topic(topic)} does not exist")
            reader = await client.create_reader(
                topic,
                start=begin,
                inclusive=inclusive,
                on_corrupt=on_corrupt.value,
                on_encrypted=on_encrypted.value,
            )
            if missing:
                tell_created(errors, topic)
            waiting, printed = (
                WaitingReport(errors),
                _Printed(SkipReport(reader, errors), GapReport(reader, errors), form),
            )
            if from_end:
                assert limit is not None, "it is required"
                return await _print_last(client, reader, wanted, limit, lines, printed, timeout, errors)
            if follow:
                batches = _batches(
                    reader, waiting.tell, WaitingHint(errors, f"messages of {topic}"), told_after_s=_TOLD_AFTER_S
                )
            else:
                from oncelog.cli.read.whole import batches_up_to_now

                batches = batches_up_to_now(client, reader, timeout_s=timeout, unavailable=waiting.tell)
            wanted.begin(reader.topic, -1)
            return await _print(batches, wanted, lines, printed, limit, errors)

    raise typer.Exit(run_command(lambda _interrupt: run(), errors))


read.__doc__ = _HELP


async def _batches(
    reader: "AsyncReader", troubled: "Callable[[OncelogError], None]", waiting: "WaitingHint", *, told_after_s: float
) -> "AsyncIterator[MessageBatch]":
    """troubled: called with the reason why nothing is read. told_after_s: without that, for so long."""
    from oncelog.core import errors

    while True:
        waiting.begins()
        try:
            batch = await reader.read_batch(timeout=told_after_s)
        except errors.LedgerUnavailable as error:
            troubled(error)
            continue
        except errors.DeadlineExceeded as late:
            if isinstance(late.__cause__, errors.OncelogError):
                troubled(late.__cause__)
            continue
        finally:
            waiting.ends()
        yield batch


class _Printed(NamedTuple):
    """What is told of messages that are not printed."""

    skips: "SkipReport"
    gaps: "GapReport"
    form: Form

    def new(self) -> bytes:
        from oncelog.cli.read.skips import gap_lines, skip_lines

        entries, missing = self.skips.new(), self.gaps.new()
        return skip_lines(entries) + gap_lines(missing) if self.form is Form.JSON else b""


async def _print(
    batches: "AsyncIterator[MessageBatch]", wanted: "Wanted", lines: "Lines", printed: _Printed, limit: int | None,
    errors: Console,
) -> Exit:  # fmt: skip
    from oncelog.cli.read.lines import written

    left = limit
    try:
        async for batch in batches:
            numbers = wanted.returned(wanted.of(batch), left)
            if not written(printed.new() + lines(batch, numbers)):
                return Exit.OK
            if left is not None:
                left -= len(numbers)
                if left == 0:
                    break
        written(printed.new())
    finally:
        if not wanted.is_all:
            errors.print(str(wanted.progress), highlight=False)
    return Exit.OK


async def _print_last(
    client: "AsyncClient", reader: "AsyncReader", wanted: "Wanted", limit: int, lines: "Lines", printed: _Printed,
    timeout_s: float, errors: Console,
) -> Exit:  # fmt: skip
    from oncelog.cli.read.lines import written
    from oncelog.client.client import network_of
    from oncelog.client.reading.log_reader import last_message
    from oncelog.client.reading.search import chosen_backwards
    from oncelog.core.names import parse_topic

    found: list[tuple[MessageBatch, Sequence[int]]] = []
    last = await last_message(network_of(client), parse_topic(reader.topic), timeout_ms=int(timeout_s * 1000))
    async with aclosing(chosen_backwards(reader, last, wanted, timeout_s=timeout_s)) as chosen:
        async for batch, numbers in chosen:
            found.append((batch, wanted.returned(numbers, limit)[::-1]))
            limit -= len(found[-1][1])
            if limit == 0:
                break
    written(printed.new() + b"".join(lines(batch, numbers) for batch, numbers in reversed(found)))
    if not wanted.is_all:
        errors.print(str(wanted.progress), highlight=False)
    return Exit.OK
