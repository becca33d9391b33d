"""The health port of a relay: /livez, /readyz, /metrics, and /status as JSON."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

from oncelog.core.errors import Fatal
from oncelog.outbox.relay import RelayProcess
from oncelog.runtime.installation import install_command


@asynccontextmanager
async def monitored(process: RelayProcess, host: str, port: int | None) -> AsyncIterator[int | None]:
    """port: None: nothing is served; 0: a free one. Raises InvalidArgument for an address that cannot be used."""
    if port is None:
        yield None
        return
    try:
        from oncelog.runtime.health import Health
        from oncelog.runtime.telemetry import Telemetry
    except ModuleNotFoundError as error:
        raise Fatal(
            f"{error.name} is not installed, and --health-port needs it: {install_command('services')}"
        ) from error
    telemetry = Telemetry.from_environment("relay", f"{socket.gethostname()}")
    health = Health(telemetry.metrics_text)
    counts = process.counts

    telemetry.observe_level("relay_active", "1: this relay has the claim", lambda: int(process.core.active))
    telemetry.observe_level(
        "relay_rows_waiting", "rows without a number, up to 100,000", lambda: counts.backlog.waiting
    )
    telemetry.observe_level(
        "relay_oldest_row_age", "age of the first of them", lambda: counts.backlog.oldest_s, unit="s"
    )
    telemetry.observe_level("relay_rows_refused", "rows that can never be sent", lambda: counts.backlog.refused)
    telemetry.observe_level("relay_topics_failed", "topics that cannot be used now", lambda: len(process.core.troubles))
    telemetry.observe_count("relay_rows_sent", "rows that were sent and stored", lambda: counts.sent)
    telemetry.observe_count("relay_claims", "claims of the outbox by this process", lambda: counts.claims)
    # A standby is ready, too. A relay without its database is not, and a restart would not help it.
    health.ready_when("database", lambda: process.trouble or None)

    def status() -> dict[str, Any]:
        return {"active": process.core.active, "troubles": process.core.troubles, **asdict(counts)}

    health.serve_value("/status", status)
    try:
        yield await health.start(host=host, port=port)
    finally:
        await health.stop()
        telemetry.shut_down()
