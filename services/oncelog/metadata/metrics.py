"""The metrics of a metadata service, beyond those that all services have."""

from oncelog.metadata.coordination.balancer import Balancer
from oncelog.metadata.coordination.coordination import Coordination
from oncelog.metadata.gateway.owner_gateway import Gateway
from oncelog.metadata.http_publish.http_publish_service import HttpPublishService
from oncelog.runtime.telemetry import Reading, Telemetry


def observe_coordination(telemetry: Telemetry, coordination: Coordination) -> None:
    counts, owners = coordination.placements.counts, coordination.owners
    telemetry.observe_count(
        "metadata_topics_placed", "Placements of topics on topic owners", lambda: [Reading(counts["topics_placed"])]
    )
    telemetry.observe_count(
        "metadata_topics_moved", "Topics moved to balance owners", lambda: [Reading(counts["topics_moved"])]
    )
    telemetry.observe_count(
        "metadata_owners_lost",
        "Topic owners whose session ended or that were suspected dead",
        lambda: [Reading(counts["owners_lost"])],
    )
    telemetry.observe_level(
        "metadata_owners_live", "Topic owners with a ZooKeeper session", lambda: [Reading(len(owners.live))]
    )
    telemetry.observe_level(
        "metadata_owners_usable", "Topic owners that take topics", lambda: [Reading(len(owners.usable))]
    )


def observe_balancer(telemetry: Telemetry, balancer: Balancer) -> None:
    telemetry.observe_level(
        "metadata_elected",
        "1 at the replica that is elected to balance topics",
        lambda: [Reading(int(balancer.elected))],
    )


def observe_gateway(telemetry: Telemetry, gateway: Gateway) -> None:
    telemetry.observe_level(
        "metadata_gateway_streams",
        "Client streams that are forwarded to topic owners",
        lambda: [Reading(gateway.stream_count)],
    )
    telemetry.observe_count(
        "metadata_gateway_bytes",
        "Bytes forwarded between clients and topic owners",
        lambda: [Reading(gateway.passed_bytes)],
    )


def observe_publishing(telemetry: Telemetry, publisher: HttpPublishService) -> None:
    counts = publisher.counts
    telemetry.observe_count(
        "metadata_published_messages",
        "Messages published over HTTP",
        lambda: [Reading(counts[by], {"by": by}) for by in ("named", "keyed")],
    )
    telemetry.observe_count(
        "metadata_idempotency_keys",
        "Requests with an idempotency key that were replayed, settled for another process, or refused",
        lambda: [Reading(counts[what], {"outcome": what}) for what in ("replayed", "settled", "refused")],
    )
