"""`oncelog read`: options and execution."""

from collections.abc import AsyncIterator, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from oncelog.cli.connection import Connection, takes_connection
from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.options import MaxMessageBytesOption, TimeoutOption
from oncelog.cli.running import run_command

if TYPE_CHECKING:
    from oncelog.cli.read.skips import GapReport, SkipReport
    from oncelog.cli.read.told import WaitingHint
    from oncelog.client.reading.reader import AsyncReader
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


_HELP = f"""Print the messages of a topic: those that are stored now, or with --follow also new ones.

With -o raw each value is printed with a newline. With -o json each message is an object with: value (value_base64 if it
is not UTF-8), producer_name, producer_id (null: stored without deduplication; without a name: the producer has
expired), sequence_id, message_id, publish_time, index (number of the message in the topic), and, if set, key,
event_time_ms and properties. Reading acknowledges nothing: to continue later, pass the last
message_id to --from.

An entry that cannot be read ends the command with an error. With --on-corrupt skip, the command skips it and reports it
on standard error; with -o json also as an object with the only field skipped (position, first_index, count, reason).
Where messages were trimmed or given up, their indexes are left out; the command reports that on standard error, and
with -o json also as an object with the only field gap (first_index, last_index, given_up).

    oncelog read flights -o json --limit 3

    oncelog read flights --from 17:4 --follow

    oncelog read flights --from 2026-01-31T12:00:00+01:00

    oncelog read flights --from-index 1000000

{EXIT_CODES}"""


@takes_connection
def read(
    topic: Annotated[str, typer.Argument(help="Topic: name, or tenant/namespace/name.")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="Start position: earliest, latest, a message id (starts after it), or an ISO time (starts with the "
            "first message stored at or after it).",
        ),
    ] = "earliest",
    from_index: Annotated[
        int | None,
        typer.Option("--from-index", min=0, help="Start with the message of this index. Not with --from."),
    ] = None,
    inclusive: Annotated[bool, typer.Option("--inclusive", help="Start with the message of --from itself.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new messages until Ctrl-C.")] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of messages. By default there is no limit.")
    ] = None,
    form: Annotated[
        Form, typer.Option("-o", "--output", help="Output format: raw (values), or json (all fields).")
    ] = Form.RAW,
    on_corrupt: Annotated[
        CorruptChoice, typer.Option("--on-corrupt", help="If an entry cannot be read: raise an error, or skip it.")
    ] = CorruptChoice.RAISE,
    max_message_bytes: MaxMessageBytesOption = None,
    *,
    connection: Connection,
    timeout: TimeoutOption = 30.0,
) -> None:
    if from_index is not None and start != "earliest":
        raise typer.BadParameter("--from and --from-index cannot be combined: use one of them")
    errors = Console(stderr=True, highlight=False)

    async def run() -> Exit:
        from oncelog.cli.read.skips import GapReport, SkipReport, WaitingReport
        from oncelog.cli.read.start import parse_start
        from oncelog.cli.read.told import WaitingHint, is_missing, tell_created
        from oncelog.core.errors import TopicNotFound
        from oncelog.core.formats.message_id import Index
        from oncelog.core.names import parse_topic

        begin = parse_start(start) if from_index is None else Index(from_index)
        async with await connection.connect(timeout, max_message_bytes=max_message_bytes) as client:
            missing = await is_missing(client, topic)
            if missing and not follow:
                raise TopicNotFound(f"topic {parse_topic(topic)} does not exist")
            reader = await client.create_reader(topic, start=begin, inclusive=inclusive, on_corrupt=on_corrupt.value)
            if missing:
                tell_created(errors, topic)
            waiting = WaitingReport(errors)
            if follow:
                batches = _batches(
                    reader, waiting.tell, WaitingHint(errors, f"messages of {topic}"), told_after_s=_TOLD_AFTER_S
                )
            else:
                from oncelog.cli.read.whole import batches_up_to_now

                batches = batches_up_to_now(client, reader, timeout_s=timeout, unavailable=waiting.tell)
            return await _print(batches, SkipReport(reader, errors), GapReport(reader, errors), form, limit)

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


async def _print(
    batches: "AsyncIterator[MessageBatch]", skips: "SkipReport", gaps: "GapReport", form: Form, limit: int | None
) -> Exit:
    from oncelog.cli.read.lines import json_lines, raw_lines, written
    from oncelog.cli.read.skips import gap_lines, skip_lines

    def skipped() -> bytes:
        entries, missing = skips.new(), gaps.new()
        return skip_lines(entries) + gap_lines(missing) if form is Form.JSON else b""

    left = limit
    async for batch in batches:
        kept = None if left is None else min(left, len(batch))
        lines = json_lines(batch, kept) if form is Form.JSON else raw_lines(batch, kept)
        if not written(skipped() + lines):
            return Exit.OK
        if left is not None and kept is not None:
            left -= kept
            if left == 0:
                break
    written(skipped())
    return Exit.OK
