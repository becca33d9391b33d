"""The metrics of a storage node: plain integers of its parts, read at each scrape."""

from collections.abc import Iterable

from oncelog.core.ledger.member_status import AppendStatus
from oncelog.log_storage.serve.node_runner import NodeRunner
from oncelog.log_storage.upkeep.compactor import Compactor
from oncelog.log_storage.upkeep.free_space import FreeSpace
from oncelog.log_storage.upkeep.scrubber import Scrubber
from oncelog.metadata_store.records.json_records import observe_damaged
from oncelog.runtime.telemetry import Reading, Telemetry


def observe(
    telemetry: Telemetry, runner: NodeRunner, space: FreeSpace, compactor: Compactor, scrubber: Scrubber
) -> None:
    """Register the counters and gauges of one node."""
    counts = runner.counts

    def answered() -> Iterable[Reading]:
        return [Reading(counts.answered[status], {"status": status.name.lower()}) for status in AppendStatus]

    observe_damaged(telemetry)
    telemetry.observe_count("storage_entries_received", "Entries received to be stored",
                            lambda: counts.entries_received)  # fmt: skip
    telemetry.observe_count("storage_bytes_received", "Bytes of entries received to be stored",
                            lambda: counts.bytes_received)  # fmt: skip
    telemetry.observe_count("storage_entries_answered", "Entries answered, by status", answered)
    telemetry.observe_count("storage_groups_synced", "Groups of records made durable, each by one sync",
                            lambda: counts.groups_synced)  # fmt: skip
    telemetry.observe_count("storage_fences", "Fence requests", lambda: counts.fences)
    telemetry.observe_count("storage_reads", "Read requests", lambda: counts.reads)
    telemetry.observe_count("storage_bytes_read", "Bytes of entries sent to readers", lambda: counts.bytes_read)
    telemetry.observe_count("storage_ticket_bytes_read", "Bytes of entries sent to readers with a ticket",
                            lambda: counts.ticket_bytes_read)  # fmt: skip
    telemetry.observe_count("storage_entries_unreadable", "Entries that were found to be damaged",
                            lambda: counts.entries_unreadable)  # fmt: skip
    telemetry.observe_count("storage_ledger_checks", "Ledger records read to check adds and deletions",
                            lambda: counts.checks)  # fmt: skip
    telemetry.observe_level("storage_queue_bytes", "Bytes received and not yet durable",
                            lambda: runner.journal.pending_bytes)  # fmt: skip
    telemetry.observe_level("storage_ledgers", "Ledgers with an entry on this node", lambda: runner.ledger_count)
    telemetry.observe_level("storage_orphaned_ledgers", "Ledgers kept although their records are missing",
                            lambda: len(counts.orphaned))  # fmt: skip
    ledgers = runner.core.ledgers
    telemetry.observe_level("storage_limbo_ledgers", "Ledgers that may lack entries because of damage",
                            lambda: len(ledgers.in_limbo))  # fmt: skip
    telemetry.observe_level("storage_damaged_ledgers", "Ledgers with entries that were found to be damaged",
                            lambda: len(ledgers.damaged))  # fmt: skip
    telemetry.observe_level("storage_unreadable_entries", "Entries that were found to be damaged, and not stored again",
                            lambda: ledgers.damaged_entries)  # fmt: skip
    telemetry.observe_level("storage_erased_ledgers", "Ledgers whose copy this node has erased",
                            lambda: len(ledgers.tombstones))  # fmt: skip
    telemetry.observe_level("storage_free_bytes", "Free space of the disk", lambda: space.free_bytes)
    telemetry.observe_level("storage_dead_bytes", "Bytes of segments that compaction can give back",
                            lambda: compactor.dead_bytes)  # fmt: skip
    telemetry.observe_count("storage_reclaimed_bytes", "Bytes of segments that compaction has removed",
                            lambda: compactor.reclaimed_bytes)  # fmt: skip
    telemetry.observe_count("storage_scrubbed_bytes", "Bytes of entries that the scrubber has read and found sound",
                            lambda: scrubber.read_bytes)  # fmt: skip
    telemetry.observe_level("storage_read_only", "1 while ordinary adds are refused because the disk is nearly full",
                            lambda: int(runner.read_only))  # fmt: skip
