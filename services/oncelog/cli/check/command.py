"""`oncelog check`: publishes one message twice, and reads it back once.

This checks an installation from end to end: look-up, placement, topic owner, storage nodes, reading, and deduplication.
Each run uses a new producer name, so that runs are independent, and waits for a cluster that is still starting.
"""

import json
import time
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer
from rich.console import Console

from oncelog.cli.connection import Connection, takes_connection
from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.options import Output, OutputOption, TimeoutOption
from oncelog.cli.running import run_command

if TYPE_CHECKING:
    from oncelog.client.client import AsyncClient

#: Any id except 0, so that a producer that assigned its own ids would be noticed.
SEQUENCE_ID = 7

_HELP = f"""Publish one message twice with the same producer name and sequence id, and read it back once.

The topic is created if it does not exist. Each check leaves one small message in it.

    oncelog check --url oncelog://127.0.0.1:6650

With -o json the output has: topic, producer_name, message_id, duplicate (the second publish was recognised as a
duplicate), copies (of the message in the log), seconds, ok.

{EXIT_CODES}"""


@takes_connection
def check(
    topic: Annotated[str, typer.Option(help="Topic to publish to.")] = "public/default/oncelog-check",
    *,
    connection: Connection,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    errors = Console(stderr=True, highlight=False)

    async def run() -> Exit:
        async with await connection.connect(timeout) as client:
            return report(await publish_twice(client, topic, timeout), output)

    raise typer.Exit(run_command(lambda _interrupt: run(), errors))


check.__doc__ = _HELP


async def publish_twice(client: "AsyncClient", topic: str, timeout_s: float) -> dict[str, object]:
    """The results, by the names that `-o json` prints. timeout_s: of each step. Raises OncelogError."""
    from oncelog.cli.read.whole import batches_up_to_now

    began_s = time.monotonic()
    name = f"check-{uuid4().hex}"
    value = name.encode()
    producer = await client.create_producer(topic, producer_name=name, send_timeout=timeout_s)
    first = await producer.send(value, sequence_id=SEQUENCE_ID)
    second = await producer.send(value, sequence_id=SEQUENCE_ID)
    copies = 0
    assert first.message_id is not None, "a stored message has an id"
    reader = await client.create_reader(topic, start=first.message_id, inclusive=True)
    async for batch in batches_up_to_now(client, reader, timeout_s=timeout_s):
        copies += sum(message.value == value for message in batch if message.producer_name == name)
    duplicate = second.duplicate and second.message_id == first.message_id
    return {
        "topic": topic,
        "producer_name": name,
        "message_id": str(first.message_id),
        "duplicate": duplicate,
        "copies": copies,
        "seconds": round(time.monotonic() - began_s, 3),
        "ok": duplicate and copies == 1 and not first.duplicate,
    }


def report(results: dict[str, object], output: Output) -> Exit:
    """Print the results; returns the exit code."""
    if output is Output.JSON:
        print(json.dumps(results))
    else:
        second = "recognised as a duplicate" if results["duplicate"] else "NOT recognised as a duplicate"
        print(f"published  {results['topic']}: producer {results['producer_name']}, sequence id {SEQUENCE_ID}")
        print(f"stored     at {results['message_id']}")
        print(f"again      {second}")
        print(f"read back  {results['copies']} of 1 copies, {results['seconds']} s in all")
        print(
            "ok: the message took effect once"
            if results["ok"]
            else "FAILED: check that deduplication is on for this topic"
        )
    return Exit.OK if results["ok"] else Exit.FAILED
