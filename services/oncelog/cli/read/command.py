"""`oncelog read`: its options and its run."""

import os
import sys
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.options import (
    DEFAULT_URL,
    PlaintextTokenOption,
    TimeoutOption,
    TlsCaFileOption,
    TokenFileOption,
    UrlOption,
)
from oncelog.cli.running import run_command

if TYPE_CHECKING:
    from oncelog.cli.read.skips import SkipsTold
    from oncelog.client.messages import MessageBatch
    from oncelog.client.reader import AsyncReader


class Form(StrEnum):
    RAW = "raw"
    JSON = "json"


class CorruptChoice(StrEnum):
    RAISE = "raise"
    SKIP = "skip"


_HELP = f"""Print the messages of a topic: all that are stored now, or with --follow on and on.

-o raw prints each value and a newline. -o json prints an object for each message: value (value_base64 where it is no
UTF-8), producer_name, sequence_id, message_id, publish_time, index (the message's dense number in the topic), and key,
event_time_ms and properties where there are any. Nothing is acknowledged: a message_id is where the next read goes on.

An entry that cannot be read ends the command with an error that names it. With --on-corrupt skip, reading goes on
behind it: what was skipped is printed on standard error, and -o json prints an object with the one field skipped in its
place (position, first_index, count, reason).

    oncelog read flights -o json --limit 3

    oncelog read flights --from 17:4 --follow

    oncelog read flights --from 2026-01-31T12:00:00+01:00

    oncelog read flights --from-index 1000000

{EXIT_CODES}"""


def read(
    topic: Annotated[str, typer.Argument(help="A name, or tenant/namespace/name.")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="earliest, latest, a message id (reading begins behind it), or an ISO time; with a time, at the first "
            "messages stored at or after it.",
        ),
    ] = "earliest",
    from_index: Annotated[
        int | None,
        typer.Option("--from-index", min=0, help="Begin with the message of this number; not with --from."),
    ] = None,
    inclusive: Annotated[bool, typer.Option("--inclusive", help="Begin with the message of --from itself.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for what comes, until Ctrl-C.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many messages.")] = None,
    form: Annotated[Form, typer.Option("-o", "--output", help="raw: values; json: all that is known.")] = Form.RAW,
    on_corrupt: Annotated[
        CorruptChoice, typer.Option("--on-corrupt", help="At an entry that cannot be read: raise an error, or skip it.")
    ] = CorruptChoice.RAISE,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    tls_ca_file: TlsCaFileOption = None,
    allow_plaintext_token: PlaintextTokenOption = False,
    timeout: TimeoutOption = 30.0,
) -> None:
    if from_index is not None and start != "earliest":
        raise typer.BadParameter("give one of --from and --from-index")
    errors = Console(stderr=True, highlight=False)

    async def run() -> Exit:
        from oncelog.cli.read.skips import SkipsTold
        from oncelog.cli.read.start import parse_start
        from oncelog.client.client import connect
        from oncelog.core.formats.message_id import Index

        begin = parse_start(start) if from_index is None else Index(from_index)
        async with await connect(
            url,
            token=token_file,
            tls_ca_file=tls_ca_file,
            allow_plaintext_token=allow_plaintext_token,
            operation_timeout=timeout,
        ) as client:
            if not follow:
                await client.last_message_id(topic)  # a read of what is stored refuses a topic that is not there
            reader = await client.create_reader(topic, start=begin, inclusive=inclusive, on_corrupt=on_corrupt.value)
            if follow:
                batches = _batches(reader)
            else:
                from oncelog.cli.read.whole import batches_up_to_now

                batches = batches_up_to_now(client, reader, timeout_s=timeout)
            return await _print(batches, SkipsTold(reader, errors), form, limit)

    raise typer.Exit(run_command(lambda _interrupt: run(), errors))


read.__doc__ = _HELP


async def _batches(reader: "AsyncReader") -> "AsyncIterator[MessageBatch]":
    while True:
        yield await reader.read_batch()


async def _print(batches: "AsyncIterator[MessageBatch]", skips: "SkipsTold", form: Form, limit: int | None) -> Exit:
    from oncelog.cli.read.lines import json_lines, raw_lines
    from oncelog.cli.read.skips import skip_lines

    def tell_skipped() -> None:
        skipped = skips.new()
        if form is Form.JSON:
            output.write(skip_lines(skipped))

    left = limit
    output = sys.stdout.buffer
    try:
        async for batch in batches:
            tell_skipped()
            kept = None if left is None else min(left, len(batch))
            output.write(json_lines(batch, kept) if form is Form.JSON else raw_lines(batch, kept))
            output.flush()
            if left is not None and kept is not None:
                left -= kept
                if left == 0:
                    break
        tell_skipped()
        output.flush()
    except BrokenPipeError:
        # Whoever reads our output has enough, as in `oncelog read … | head`; nothing more may be flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.OK
