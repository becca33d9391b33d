"""REST over the gRPC port of a metadata service (a service URL): each HTTP request of httpx is one gRPC call."""

import asyncio

import httpx

from oncelog.client.network.addresses import parse_url
from oncelog.core.errors import OncelogError, ServiceUnavailable
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.metadata_codec import REST
from oncelog.runtime.credentials import Credentials
from oncelog.wire.metadata_pb2 import RestAnswer, RestRequest

#: Headers that are not sent; the gRPC call carries the token.
_NOT_SENT = frozenset({"authorization", "host", "connection", "content-length"})
_PAUSE_S = 0.2


class ProxyTransport(httpx.BaseTransport):
    """Tries the metadata services of the URL in turn until one is reachable. A request that was sent is not repeated.
    Raises OncelogError.
    """

    def __init__(self, url: str, credentials: Credentials, *, timeout_s: float) -> None:
        self._addresses = parse_url(url)
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._runner = asyncio.Runner()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        call = RestRequest(method=request.method, target=request.url.raw_path.decode("ascii"), body=request.read())
        for name, value in request.headers.items():
            if name.lower() not in _NOT_SENT:
                call.headers.add(name=name.lower(), value=value)
        answer = self._runner.run(self._ask(call))
        headers = [(header.name, header.value) for header in answer.headers]
        return httpx.Response(answer.status, headers=headers, content=answer.body)

    async def _ask(self, call: RestRequest) -> RestAnswer:
        channels = [Channel(address, credentials=self._credentials, origin=ORIGIN) for address in self._addresses]
        failure: OncelogError = ServiceUnavailable("the URL has no metadata service")
        end_s = asyncio.get_running_loop().time() + self._timeout_s
        try:
            while True:
                for channel in channels:
                    try:
                        return await channel.call(REST, call, timeout_ms=int(self._timeout_s * 1000))
                    except ServiceUnavailable as error:
                        if not isinstance(error.details.get("reason"), str):
                            raise  # the request was sent: its result is unknown
                        failure = error
                # A refused connection would be refused again. A connection that timed out is retried until the
                # deadline.
                if "no connection within" not in failure.message or asyncio.get_running_loop().time() > end_s:
                    raise failure
                await asyncio.sleep(_PAUSE_S)
        finally:
            for channel in channels:
                await channel.close()

    def close(self) -> None:
        self._runner.close()


ORIGIN = "a metadata service"
