"""A consumer of a shared subscription that receives messages, says so, and does nothing more: a program to be killed.

Usage: hold_messages.py URL TOPIC COUNT
"""

import sys

import pulsar


def main(url: str, topic: str, count: str) -> None:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(
        topic, "billing", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=int(count),
    )  # fmt: skip
    for _ in range(int(count)):
        print(consumer.receive().data().decode(), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
