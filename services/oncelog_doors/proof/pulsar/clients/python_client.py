"""The program with Pulsar's Python client, which is its C++ library (see `clients`)."""

import sys
from functools import partial
from typing import Any

import pulsar

_READ_MS = 60_000


def main(url: str, topic: str) -> None:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), operation_timeout_seconds=60)
    producer = consumer = None
    received: dict[str, Any] = {}
    for line in sys.stdin:
        match line.split():
            case "open", name, count, timeout_ms:
                batching = {"batching_max_messages": int(count), "batching_max_publish_delay_ms": 60_000}
                single = {"batching_enabled": False, "chunking_enabled": True}
                chosen = {"batching_enabled": True, **batching} if count != "1" else single
                try:
                    producer = client.create_producer(topic, name, send_timeout_millis=int(timeout_ms), **chosen)
                except pulsar.PulsarException as error:
                    say("error", type(error).__name__)
                else:
                    say("opened", producer.last_sequence_id())
            case "send", tag, number, value, size if producer is not None:
                chosen = {} if number == "-" else {"sequence_id": int(number)}
                producer.send_async(value.encode().ljust(int(size)), partial(answered, tag), **chosen)
            case ["read"]:
                reader = client.create_reader(topic, pulsar.MessageId.earliest)
                found = []
                while reader.has_message_available():
                    found.append(reader.read_next(_READ_MS).data().decode().rstrip())
                say("read", *found)
            case ["consume", queue]:
                consumer = client.subscribe(
                    topic, "billing", pulsar.ConsumerType.Shared, receiver_queue_size=int(queue),
                    initial_position=pulsar.InitialPosition.Earliest,
                )  # fmt: skip
                say("consuming")
            case "receive", milliseconds, *values if consumer is not None:
                say("received", *receive(consumer, int(milliseconds) or None, set(values), received))
            case "acknowledge", *values if consumer is not None:
                for value in values:
                    consumer.acknowledge(received[value])
                say("acknowledged")
            case ["close"] if consumer is not None:
                consumer.close()
                say("closed")
            case other:
                raise SystemExit(f"unknown line: {other}")


def receive(consumer: Any, milliseconds: int | None, missing: set[str], received: dict[str, Any]) -> list[str]:
    found = []
    while missing:
        try:
            message = consumer.receive(milliseconds)
        except pulsar.Timeout:
            break
        found.append(message.data().decode())
        received[found[-1]] = message
        missing.discard(found[-1])
    return found


def answered(tag: str, result: Any, place: Any) -> None:
    if result == pulsar.Result.Ok:
        say("sent", tag, str(place).replace(" ", ""))
    else:
        say("failed", tag, result.name)


def say(*words: Any) -> None:
    print(*words, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
