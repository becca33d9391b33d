"""REST through the gRPC port of a metadata service: what httpx sends goes out as one call, `oncelog+proxy://`."""

import asyncio

import httpx

from oncelog.client.addresses import parse_url
from oncelog.core.errors import OncelogError, ServiceUnavailable
from oncelog.rpc.channel import Channel
from oncelog.rpc.metadata_codec import REST
from oncelog.runtime.credentials import Credentials
from oncelog.wire.metadata_pb2 import RestAnswer, RestRequest

#: The gRPC call shows the token.
_NOT_SENT = frozenset({"authorization", "host", "connection", "content-length"})
_PAUSE_S = 0.2


class ProxyTransport(httpx.BaseTransport):
    """Asks one metadata service of the URL after the other until one is reached; a request that went out is not sent
    again. Raises OncelogError."""

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
        failure: OncelogError = ServiceUnavailable("no metadata service is named")
        end_s = asyncio.get_running_loop().time() + self._timeout_s
        try:
            while True:
                for channel in channels:
                    try:
                        return await channel.call(REST, call, timeout_ms=int(self._timeout_s * 1000))
                    except ServiceUnavailable as error:
                        if not isinstance(error.details.get("reason"), str):
                            raise  # it went out: what became of it is not known
                        failure = error
                # A connection that is refused is refused again; one that takes its time is waited for.
                if "no connection within" not in failure.message or asyncio.get_running_loop().time() > end_s:
                    raise failure
                await asyncio.sleep(_PAUSE_S)
        finally:
            for channel in channels:
                await channel.close()

    def close(self) -> None:
        self._runner.close()


ORIGIN = "a metadata service"
