"""What the health port of a relay tells."""

from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from oncelog.runtime import monitoring
from oncelog_effects.outbox.relay import RelayProcess

if TYPE_CHECKING:
    from oncelog.runtime.health import Health
    from oncelog.runtime.telemetry import Telemetry


def monitored(process: RelayProcess, host: str, port: int | None) -> AbstractAsyncContextManager[int | None]:
    """See `runtime.monitoring`."""
    return monitoring.monitored("relay", host, port, lambda health, telemetry: _describe(process, health, telemetry))


def _describe(process: RelayProcess, health: "Health", telemetry: "Telemetry") -> None:
    counts = process.counts

    telemetry.observe_level("relay_active", "1: this relay has the claim", lambda: int(process.core.active))
    telemetry.observe_level(
        "relay_rows_waiting", "rows without a number, up to 100,000", lambda: counts.backlog.waiting
    )
    telemetry.observe_level("relay_oldest_row_age_seconds", "age of the first of them", lambda: counts.backlog.oldest_s)
    telemetry.observe_level("relay_rows_refused", "rows that can never be sent", lambda: counts.backlog.refused)
    telemetry.observe_level("relay_topics_failed", "topics that cannot be used now", lambda: len(process.core.troubles))
    telemetry.observe_count("relay_rows_sent", "rows that were sent and stored", lambda: counts.sent)
    telemetry.observe_count("relay_claims", "claims of the outbox by this process", lambda: counts.claims)
    # A standby is ready, too. A relay without its database is not, and a restart would not help it.
    health.ready_when("database", lambda: process.trouble or None)

    def status() -> dict[str, Any]:
        return {"active": process.core.active, "troubles": process.core.troubles, **asdict(counts)}

    health.serve_value("/status", status)
