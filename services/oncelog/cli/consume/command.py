"""`oncelog consume`: options and execution."""

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from oncelog.cli.connection import Connection, takes_connection
from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.options import LOCAL_TIME, MaxMessageBytesOption, TimeoutOption
from oncelog.cli.read.command import CorruptChoice, EncryptedChoice, EncryptedOption, Form, check_encrypted
from oncelog.cli.running import Interrupt, run_command

if TYPE_CHECKING:
    from oncelog.cli.read.told import WaitingHint
    from oncelog.client.consuming.consumer import AsyncConsumer
    from oncelog.client.values.consumer_batch import ConsumerBatch

#: Messages that are printed and acknowledged together.
_BATCH_MESSAGES = 1_000


class TypeChoice(StrEnum):
    EXCLUSIVE = "exclusive"
    FAILOVER = "failover"
    SHARED = "shared"
    KEY_SHARED = "key_shared"


_HELP = f"""Print the messages of a subscription, and acknowledge them.

The cluster keeps the position of a subscription: run the command again, and it continues after the last acknowledged
message. A missing subscription is created and begins at --from; the command says so if that is the latest message, and
if it has created the topic. Messages are acknowledged after they were printed and the output was flushed. If the
command is killed in between, a message can be printed twice, but none is left out. With --no-ack the messages
are delivered again when the command ends.

It waits for new messages until Ctrl-C; --limit and --idle end it before. With -o json each message is an object with
the fields of `oncelog read`, and delivery_count, from 2 on, if it was delivered before.

\b
  oncelog consume orders --subscription billing --from earliest
  oncelog consume orders -s billing --type shared --limit 100 -o json
  oncelog consume orders -s billing --no-ack --limit 1

{EXIT_CODES}"""


@takes_connection
def consume(
    topic: Annotated[str, typer.Argument(help="Topic: name, or tenant/namespace/name.")],
    subscription: Annotated[str, typer.Option("--subscription", "-s", help="Name of the subscription.")],
    kind: Annotated[
        TypeChoice, typer.Option("--type", help="How messages are distributed among consumers.")
    ] = TypeChoice.EXCLUSIVE,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="Where the subscription begins if it is created now: latest, earliest, a message id (begins after "
            f"it), or an ISO time. {LOCAL_TIME}",
        ),
    ] = "latest",
    from_index: Annotated[
        int | None,
        typer.Option("--from-index", min=0, help="Begin with the message of this index. Not with --from."),
    ] = None,
    inclusive: Annotated[bool, typer.Option("--inclusive", help="Begin with the message of --from itself.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="End after this number of messages.")
    ] = None,
    idle: Annotated[
        float | None,
        typer.Option(
            "--idle",
            min=0.1,
            help="End when no message has arrived for this number of seconds, also before the first one.",
        ),
    ] = None,
    acknowledge: Annotated[bool, typer.Option("--ack/--no-ack", help="Acknowledge printed messages.")] = True,
    consumer_name: Annotated[
        str | None, typer.Option("--consumer-name", help="Unique among the subscription's consumers.")
    ] = None,
    max_deliveries: Annotated[
        int | None,
        typer.Option(
            "--max-deliveries",
            min=1,
            help="Deliveries after which a message goes to the dead-letter topic. Default: no limit.",
        ),
    ] = None,
    dead_letter_topic: Annotated[
        str | None, typer.Option("--dead-letter-topic", help="Default: TOPIC-SUBSCRIPTION-DLQ.")
    ] = None,
    form: Annotated[
        Form, typer.Option("-o", "--output", help="Output format: raw (values), or json (all fields).")
    ] = Form.RAW,
    on_corrupt: Annotated[
        CorruptChoice, typer.Option("--on-corrupt", help="If an entry cannot be decoded: raise an error, or skip it.")
    ] = CorruptChoice.RAISE,
    on_encrypted: EncryptedOption = EncryptedChoice.RAISE,
    max_message_bytes: MaxMessageBytesOption = None,
    *,
    connection: Connection,
    timeout: TimeoutOption = 30.0,
) -> None:
    if from_index is not None and start != "latest":
        raise typer.BadParameter("--from and --from-index cannot be combined: use one of them")
    check_encrypted(on_encrypted, form)
    errors = Console(stderr=True, highlight=False)

    async def run(interrupt: Interrupt) -> Exit:
        from oncelog.cli.read.start import parse_start
        from oncelog.cli.read.told import WaitingHint, is_missing, say, tell_created
        from oncelog.core.formats.message_id import LATEST, Index

        begin = parse_start(start) if from_index is None else Index(from_index)
        async with await connection.connect(timeout, max_message_bytes=max_message_bytes) as client:
            missing = await is_missing(client, topic, timeout)
            consumer = await client.subscribe(
                topic,
                subscription=subscription,
                type=kind.value,
                start=begin,
                inclusive=inclusive,
                consumer_name=consumer_name,
                max_deliveries=max_deliveries,
                dead_letter_topic=dead_letter_topic,
                on_corrupt=on_corrupt.value,
                on_encrypted=on_encrypted.value,
                receive_window=min(10_000, limit or 10_000),
            )
            if missing:
                tell_created(errors, topic)
            elif consumer.created and begin == LATEST:
                say(
                    errors,
                    f"subscription {subscription} is new and begins at the latest message, so earlier messages are not "
                    f"delivered; to get them: oncelog admin subscriptions seek {topic} {subscription} --to earliest",
                )
            printing = _Printing(consumer, form, WaitingHint(errors, f"messages of {topic}"), acknowledge=acknowledge)
            return await printing.run(interrupt, limit, idle)

    raise typer.Exit(run_command(run, errors))


consume.__doc__ = _HELP


class _Printing:
    """Prints batches, and acknowledges each when it was printed."""

    def __init__(self, consumer: "AsyncConsumer", form: Form, waiting: "WaitingHint", *, acknowledge: bool) -> None:
        self._consumer = consumer
        self._form = form
        self._waiting = waiting
        self._acknowledge = acknowledge

    async def run(self, interrupt: Interrupt, limit: int | None, idle: float | None) -> Exit:
        """Ends after `limit` messages, after `idle` seconds without one, at Ctrl-C, or when the output is closed."""
        stopped = asyncio.Event()
        interrupt.first = stopped.set
        stopping = asyncio.ensure_future(stopped.wait())
        left = limit
        try:
            while left is None or left > 0:
                wanted = _BATCH_MESSAGES if left is None else min(left, _BATCH_MESSAGES)
                receiving = asyncio.ensure_future(self._consumer.receive_batch(wanted))
                self._waiting.begins()
                await asyncio.wait((receiving, stopping), timeout=idle, return_when=asyncio.FIRST_COMPLETED)
                self._waiting.ends()
                if not receiving.done():
                    receiving.cancel()
                    break
                batch = receiving.result()
                if not self._print(batch):
                    break
                if self._acknowledge:
                    await self._consumer.ack(batch)
                left = None if left is None else left - len(batch)
        finally:
            stopping.cancel()
        return Exit.INTERRUPTED if stopped.is_set() else Exit.OK

    def _print(self, batch: "ConsumerBatch") -> bool:
        """Returns False if nobody reads the output any more."""
        from oncelog.cli.read.lines import json_lines, raw_lines, written

        lines = json_lines if self._form is Form.JSON else raw_lines
        # What was not printed is not acknowledged.
        return written(b"".join(lines(part, range(len(part))) for part in batch.batches))
