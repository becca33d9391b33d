"""Publishes the lines of a file with Pulsar's Python client, as a user of it does: URL TOPIC FILE [again].

The sequence id of a line is its number, from 1. After a restart it goes on behind the last one that is stored; `again`:
it begins at the first line, as a program does that does not ask. Each line of its standard input is a number: so many
lines of the file are complete. It prints the number of each line that has its receipt.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pulsar


def main(url: str, topic: str, path: str, again: str = "") -> int:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
    producer = client.create_producer(
        topic, "importer", send_timeout_millis=0, block_if_queue_full=True,
        batching_enabled=True, batching_max_messages=30, batching_max_publish_delay_ms=1,
    )  # fmt: skip
    sent = 0 if again else max(0, producer.last_sequence_id())
    print("begins behind", sent, flush=True)
    for complete in map(int, sys.stdin):
        lines = Path(path).read_bytes().splitlines()
        for number in range(sent + 1, complete + 1):
            producer.send_async(lines[number - 1], partial(answered, number), sequence_id=number)
        sent = max(sent, complete)
    producer.flush()
    client.close()
    print("done", flush=True)
    return 0


def answered(number: int, result: Any, _: Any) -> None:
    print(number if result == pulsar.Result.Ok else f"{number} failed: {result}", flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
