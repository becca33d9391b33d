"""The metrics of a door, all with the prefix oncelog_door_; those of Kafka's clients with oncelog_door_kafka_."""

from oncelog.runtime.telemetry import Reading, Telemetry
from oncelog_doors.kafka.home import KafkaHome
from oncelog_doors.pulsar.home import Home


def observe(telemetry: Telemetry, home: Home) -> None:
    """Register the instruments of the door for Pulsar's clients."""
    counts = home.counts
    telemetry.observe_level("door_connections", "Connections of clients", lambda: len(home.connections))
    telemetry.observe_level("door_producers", "Producers of clients, open or being opened", lambda: home.producer_count)
    telemetry.observe_level(
        "door_kept_bytes", "Bytes that clients have sent and the log has not decided about", lambda: home.budget.total
    )
    telemetry.observe_level(
        "door_consumers", "Readers and consumers of clients, open or being opened", lambda: home.consumer_count
    )
    telemetry.observe_level(
        "door_read_ahead_bytes",
        "Bytes that the readers of all clients may hold ready together",
        lambda: home.cluster.read_ahead_bytes,
    )
    telemetry.observe_count(
        "door_messages_out", "Messages that were sent to clients, also again", lambda: counts.messages_out
    )
    telemetry.observe_count("door_bytes_out", "Bytes of entries that were sent to clients", lambda: counts.bytes_out)
    telemetry.observe_count("door_sends", "Batches that clients have sent", lambda: counts.sends)
    telemetry.observe_count("door_receipts", "Receipts that were sent to clients", lambda: counts.receipts)
    telemetry.observe_count(
        "door_producers_closed",
        "Producers that the door has closed, and that their clients open again",
        lambda: counts.producers_closed,
    )
    telemetry.observe_count(
        "door_connections_refused",
        "Connections above a limit, or from an address that has failed too often",
        lambda: counts.connections_refused,
    )
    telemetry.observe_count(
        "door_acks_ignored",
        "Ids that clients have acknowledged, and that name nothing their consumer holds",
        lambda: counts.acks_ignored,
    )
    telemetry.observe_count(
        "door_undeliverable",
        "Entries that a client could not read, or that could not be made for it; tried again after a minute",
        lambda: counts.undeliverable,
    )
    telemetry.observe_count(
        "door_refusals",
        "Errors that clients got, by their code in Pulsar's protocol",
        lambda: [Reading(count, {"reason": name}) for name, count in sorted(counts.refusals.items())],
    )


def observe_kafka(telemetry: Telemetry, home: KafkaHome) -> None:
    """Register the instruments of the door for Kafka's clients."""
    counts = home.counts
    telemetry.observe_level("door_kafka_connections", "Connections of Kafka's clients", lambda: len(home.connections))
    telemetry.observe_level(
        "door_kafka_producers",
        "Producers of Kafka's clients, of each partition that they send to, open or being opened",
        lambda: len(home.producers),
    )
    telemetry.observe_level(
        "door_kafka_kept_bytes",
        "Bytes of requests that are not answered and of batches that the log has not decided about",
        lambda: home.budget.total,
    )
    telemetry.observe_count(
        "door_kafka_requests",
        "Requests that were answered",
        lambda: [Reading(count, {"kind": name}) for name, count in sorted(counts.requests.items())],
    )
    telemetry.observe_count("door_kafka_bytes_out", "Bytes of answers", lambda: counts.bytes_out)
    telemetry.observe_count(
        "door_kafka_connections_refused",
        "Connections of Kafka's clients above a limit, or from an address that has failed too often",
        lambda: counts.connections_refused,
    )
    telemetry.observe_count(
        "door_kafka_refusals",
        "Errors that Kafka's clients got for partitions, topics and requests, by their code",
        lambda: [Reading(count, {"reason": name}) for name, count in sorted(counts.refusals.items())],
    )
    telemetry.observe_count(
        "door_kafka_batches_without_numbers",
        "Batches of producers without idempotence, whose repetitions by the client are stored again",
        lambda: counts.unnumbered,
    )
