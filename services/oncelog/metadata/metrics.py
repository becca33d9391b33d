"""The metrics of a metadata service, beyond those that all services have."""

from collections.abc import Callable

from oncelog.core.process_version import PROCESS_VERSION
from oncelog.metadata.gateway.owner_gateway import Gateway
from oncelog.metadata.http_consume.http_consume_service import HttpConsumeService
from oncelog.metadata.http_publish.http_publish_service import HttpPublishService
from oncelog.metadata.observing.served_certificates import ServedCertificates
from oncelog.metadata.placement.balancer import Balancer
from oncelog.metadata.repair.repair import Repair
from oncelog.metadata.replica import Coordination
from oncelog.metadata.restore.record_copies import RecordCopies
from oncelog.metadata_store.notes.note_comparison import NoteComparison
from oncelog.runtime.observing.audit_log import AuditLog
from oncelog.runtime.telemetry import Reading, Telemetry


def observe_levels(telemetry: Telemetry, stored: Callable[[], int]) -> None:
    """stored: the level of the cluster, as this replica has read it last."""
    telemetry.observe_level("metadata_cluster_level", "Level of the cluster: no lower version may take part", stored)
    telemetry.observe_level("metadata_process_level", "Highest level that this program knows", lambda: PROCESS_VERSION)


def observe_coordination(telemetry: Telemetry, coordination: Coordination) -> None:
    counts, owners = coordination.placements.counts, coordination.owners
    telemetry.observe_count(
        "metadata_topics_placed", "Placements of topics on topic owners", lambda: counts["topics_placed"]
    )
    telemetry.observe_count("metadata_topics_moved", "Topics moved to balance owners", lambda: counts["topics_moved"])
    telemetry.observe_count(
        "metadata_owners_lost",
        "Topic owners whose session ended or that were suspected dead",
        lambda: counts["owners_lost"],
    )
    telemetry.observe_level("metadata_owners_live", "Topic owners with a ZooKeeper session", lambda: len(owners.live))
    telemetry.observe_level("metadata_owners_usable", "Topic owners that take topics", lambda: len(owners.usable))
    admission = coordination.lookup.admission
    telemetry.observe_level(
        "metadata_lookups",
        "Look-ups and creations of topics in progress, with those that wait",
        lambda: admission.callers,
    )
    telemetry.observe_count(
        "metadata_lookups_refused",
        "Look-ups and creations of topics that were refused, because too many were in progress",
        lambda: admission.refused,
    )


def observe_election(telemetry: Telemetry, balancer: Balancer) -> None:
    telemetry.observe_level(
        "metadata_elected",
        "1 at the replica that is elected to balance topics and to repair ledgers",
        lambda: int(balancer.elected),
    )


def observe_notes(telemetry: Telemetry, comparison: NoteComparison) -> None:
    """Of the elected replica; the others export no level."""

    def lacking() -> list[Reading]:
        return [Reading(sum(not whole for whole in comparison.whole.values()))] if comparison.whole else []

    telemetry.observe_level(
        "metadata_storage_nodes_lacking_notes",
        "Storage nodes that do not hold notes of all records, or did not answer",
        lacking,
    )


def observe_repair(telemetry: Telemetry, repair: Repair) -> None:
    """Of the elected replica; the others export no levels."""
    requests, repairer = repair.requests, repair.repairer

    telemetry.observe_level(
        "metadata_under_replicated_ledgers",
        "Ledgers with fewer live copies than their write quorum",
        lambda: repairer.readings(lambda progress: progress.under_replicated),
    )
    telemetry.observe_level(
        "metadata_unavailable_ledgers",
        "Ledgers with entries of which no sound copy is known at a live storage node",
        lambda: repairer.readings(lambda progress: progress.unavailable),
    )
    telemetry.observe_level(
        "metadata_lost_ledgers",
        "Ledgers of which entries have no copy any more",
        lambda: repairer.readings(lambda progress: progress.lost),
    )
    telemetry.observe_level(
        "metadata_frozen_ledgers",
        "Ledgers whose sound copies differ",
        lambda: repairer.readings(lambda progress: progress.frozen),
    )
    telemetry.observe_level(
        "metadata_repair_debt_ledgers",
        "Copies of retired or draining storage nodes that live nodes could take over and have not yet",
        lambda: repairer.readings(lambda progress: progress.debt),
    )
    telemetry.observe_level(
        "metadata_repair_stuck_ledgers",
        "Ledgers that cannot be repaired now",
        lambda: repairer.readings(lambda progress: len(progress.stuck)),
    )
    telemetry.observe_level(
        "metadata_repair_oldest_seconds",
        "Time since the ledger that waits longest needs repair",
        repairer.oldest_readings,
    )
    telemetry.observe_count("metadata_repair_bytes", "Bytes of copied entries", lambda: requests.copied_bytes)
    telemetry.observe_count("metadata_repair_entries", "Copied entries", lambda: requests.copied_entries)


def observe_copies(telemetry: Telemetry, copies: RecordCopies) -> None:
    """Of copies of ZooKeeper's records. Only the elected replica exports the levels."""
    counts = copies.counts

    def readings(value: float | None) -> list[Reading]:
        return [] if value is None else [Reading(value)]

    telemetry.observe_level(
        "metadata_record_copy_age_seconds",
        "Age of the newest copy of ZooKeeper's records that a live storage node has",
        lambda: readings(copies.age_s()),
    )
    telemetry.observe_level(
        "metadata_record_copy_bytes",
        "Size of the newest copy of ZooKeeper's records",
        lambda: readings(counts.newest_bytes if copies.age_s() is not None else None),
    )
    telemetry.observe_count(
        "metadata_record_copies",
        "Copies of ZooKeeper's records that this replica has made or failed to make",
        lambda: [Reading(counts.made, {"outcome": "made"}), Reading(counts.failed, {"outcome": "failed"})],
    )


def observe_gateway(telemetry: Telemetry, gateway: Gateway) -> None:
    telemetry.observe_level(
        "metadata_gateway_streams",
        "Client streams that are forwarded to topic owners",
        lambda: gateway.stream_count,
    )
    telemetry.observe_count(
        "metadata_gateway_bytes",
        "Bytes forwarded between clients and topic owners",
        lambda: gateway.passed_bytes,
    )


def observe_certificates(telemetry: Telemetry, served: ServedCertificates) -> None:
    telemetry.observe_level(
        "metadata_tls_served_expiry_timestamp_seconds",
        "When the certificate expires that a server of ZooKeeper, or Redis, serves now",
        served.readings,
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


def observe_consuming(telemetry: Telemetry, consumer: HttpConsumeService) -> None:
    counts = consumer.counts
    telemetry.observe_level("metadata_http_sessions", "Open sessions of HTTP consume", lambda: consumer.session_count)
    telemetry.observe_level(
        "metadata_http_session_bytes", "Bytes of messages that wait for these sessions", lambda: consumer.bytes.bytes
    )
    telemetry.observe_count(
        "metadata_http_consumed_messages",
        "Messages that HTTP consume has given out, acknowledged, or returned",
        lambda: [Reading(counts[what], {"outcome": what}) for what in ("given", "acknowledged", "returned")],
    )


def observe_audit(telemetry: Telemetry, audit: AuditLog) -> None:
    results = ("logged", "left_out", "missing_in_file")
    telemetry.observe_count(
        "metadata_audit_lines",
        "Lines of the audit log, refusals that were left out, and lines that the audit file lacks",
        lambda: [Reading(audit.counts[result], {"result": result}) for result in results],
    )
