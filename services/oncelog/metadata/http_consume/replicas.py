"""The other metadata services, for requests that belong to a session which one of them keeps.

A request is forwarded as it came, over gRPC (`Rest`), with the caller's own token: so the replica that keeps the
session checks the token and the rights, as for a request of its own. A session's id names its home by a digest, and
only registered services are asked, so no id leads to another address.
"""

import asyncio
from dataclasses import replace

from oncelog.core.address import join_address
from oncelog.core.errors import DeadlineExceeded, ServiceUnavailable
from oncelog.core.http_consume.delivery_id import home_of
from oncelog.metadata_store.records.registry import LiveMetadata, Registry
from oncelog.rpc.channels import Channels
from oncelog.rpc.codecs.metadata_codec import REST_SERVED
from oncelog.rpc.options import AUTHORIZATION
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.wire.metadata_pb2 import RestAnswer, RestRequest


class Replicas:
    """own: the home of this replica's sessions. Run `run` as a task; `close` at the end."""

    def __init__(self, registry: Registry, own: str, peers: Credentials = PLAIN) -> None:
        """peers: credentials for connections; this service's own token is never sent from here."""
        self.own = own
        self._registry = registry
        self._channels = Channels(replace(peers, token=None))
        #: {home: the address of its gRPC}
        self._addresses: dict[str, str] = {}

    async def run(self) -> None:
        """Follow the registrations; never returns."""
        async for live in self._registry.metadata.watch():
            self._note(live)

    def _note(self, live: dict[str, LiveMetadata]) -> None:
        self._addresses = {
            home_of(each.host, each.ports["grpc"]): join_address(each.host, each.ports["grpc"])
            for each in live.values()
            if "grpc" in each.ports
        }
        self._channels.retain(self._addresses.values())

    async def is_registered(self, home: str) -> bool:
        """Whether a service with this home is registered now. Raises StoreUnavailable."""
        if home not in self._addresses:
            # A replica that has just begun may not have been seen yet.
            self._note(await self._registry.metadata.live())
        return home in self._addresses

    async def ask(self, home: str, request: RestRequest, authorization: str | None, *, timeout_s: float) -> RestAnswer:
        """The answer of the replica. Raises ServiceUnavailable when it cannot be reached, and DeadlineExceeded."""
        address = self._addresses.get(home)
        if address is None:
            raise ServiceUnavailable("the metadata service that keeps this session is not registered any more: retry")
        metadata = () if authorization is None else ((AUTHORIZATION, authorization),)
        stream = self._channels.shared(address, origin="another metadata service").stream(
            REST_SERVED, metadata=metadata
        )
        try:
            async with asyncio.timeout(timeout_s):
                await stream.write(request)
                await stream.finish()
                return await anext(stream)
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"the metadata service that keeps this session did not answer within {timeout_s:g} s"
            ) from error
        except StopAsyncIteration as error:
            raise ServiceUnavailable("the metadata service that keeps this session gave no answer: retry") from error
        finally:
            stream.cancel()

    async def close(self) -> None:
        await self._channels.close()
