"""Until when the certificates are valid that ZooKeeper's servers and Redis serve now.

Such a server reads its certificate at its start only. After a renewal it serves the former one until it restarts, and
nothing fails before that one has expired: then the next process that connects cannot. The files do not show it, so
each metadata service looks at what is served.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing

from oncelog.core.address import split_address
from oncelog.core.errors import OncelogError
from oncelog.metadata_store.joining.joining import server_tls
from oncelog.metadata_store.keys.key_server import redis_address
from oncelog.runtime.settings import MetadataSettings
from oncelog.runtime.telemetry import Reading

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 300.0
_HANDSHAKE_TIMEOUT_S = 10.0

#: {host:port: the context for a connection to it}
Places = dict[str, ssl.SSLContext]


def places_of(settings: MetadataSettings) -> Places:
    """The servers that speak TLS. Their certificates are looked at, not verified: an expired one is worth telling.

    Raises InvalidArgument for a file that cannot be used."""
    found: Places = {}
    tls = server_tls(settings)
    if tls is not None:
        servers = settings.zookeeper_hosts.partition("/")[0].split(",")
        found |= {server.strip(): _unverified(tls.context()) for server in servers}
    redis = redis_address(settings)
    if redis is not None and redis.speaks_tls:
        found[redis.place] = _unverified(ssl.create_default_context())
    return found


def _unverified(context: ssl.SSLContext) -> ssl.SSLContext:
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class ServedCertificates:
    """places: called at each look, because files and addresses may change."""

    def __init__(self, places: Callable[[], Places]) -> None:
        self._places = places
        #: {host:port: seconds since 1970}, of the servers that answered the newest look
        self._expiries: dict[str, float] = {}

    async def run(self) -> None:
        """Look again and again, until it is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Of a server that cannot be reached nothing is known: its last expiry is not told any more."""
        try:
            places = self._places()
        except OncelogError as error:
            logger.warning("cannot look at the certificates that ZooKeeper and Redis serve: %s", error.message)
            return
        found = await asyncio.gather(*(_expiry(place, context) for place, context in places.items()))
        self._expiries = {place: at_s for place, at_s in zip(places, found, strict=True) if at_s is not None}

    def readings(self) -> Iterator[Reading]:
        return (Reading(at_s, {"server": place}) for place, at_s in sorted(self._expiries.items()))


async def _expiry(place: str, context: ssl.SSLContext) -> float | None:
    """The last second of the certificate that is served there; None: nobody answered."""
    # Imported here, because it loads cryptography, which slows every start.
    from cryptography import x509

    host, port = split_address(place)
    try:
        async with asyncio.timeout(_HANDSHAKE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
        with closing(writer):
            served = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(served).not_valid_after_utc.timestamp()
    except (OSError, TimeoutError, ValueError) as error:
        logger.info("%s shows no certificate: %s", place, str(error) or type(error).__name__)
        return None
