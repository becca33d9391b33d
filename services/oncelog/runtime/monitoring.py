"""The health port of a program that is no service of a cluster: /livez, /readyz, /metrics, and /status as JSON."""

import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from oncelog.core.errors import Fatal
from oncelog.runtime.installation import install_command

if TYPE_CHECKING:
    from oncelog.runtime.health import Health
    from oncelog.runtime.telemetry import Telemetry

logger = logging.getLogger(__name__)


@asynccontextmanager
async def monitored(
    service: str, host: str, port: int | None, describe: "Callable[[Health, Telemetry], None]"
) -> AsyncIterator[int | None]:
    """Serve the port inside of the block. port: None: nothing is served; 0: a free one. describe: adds checks, metrics
    and the status. Raises InvalidArgument for an address that cannot be used, Fatal without the extra `services`."""
    if port is None:
        yield None
        return
    try:
        from oncelog.runtime.health import Health
        from oncelog.runtime.observing.http_hosts import HttpHosts
        from oncelog.runtime.telemetry import Telemetry
    except ModuleNotFoundError as error:
        raise Fatal(
            f"{error.name} is not installed, and the health port needs it: {install_command('services')}"
        ) from error
    telemetry = Telemetry.from_environment(service, socket.gethostname())
    health = Health(telemetry.metrics_text, HttpHosts.of_environment())
    describe(health, telemetry)
    try:
        found = await health.start(host=host, port=port)
        logger.info("health port", extra={"fields": {"url": f"http://{host}:{found}"}})
        yield found
    finally:
        await health.stop()
        telemetry.shut_down()
