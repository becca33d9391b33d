"""REST of the cluster for the callers of a door, through a client that has no token of its own: what it does, it does
with the token of the caller."""

from collections.abc import Mapping

from oncelog.client.client import AsyncClient
from oncelog.client.rest_calls import forward
from oncelog.core.errors import Unauthenticated
from oncelog.wire.metadata_pb2 import RestHeader, RestRequest
from oncelog_doors.rest.ports import RestAnswer

_HEADER_CHARACTERS_MAX = 8_192


class ForwardedRest:
    """client: without a token, unless all callers are the door itself: its own token goes with calls that have none."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def ask(
        self, method: str, target: str, body: bytes, *, headers: Mapping[str, str], authorization: str | None
    ) -> RestAnswer:
        if authorization is not None and not _is_header(authorization):
            raise Unauthenticated("the header Authorization is no token: send `Bearer TOKEN`")
        given = [RestHeader(name=name, value=value) for name, value in headers.items()]
        request = RestRequest(method=method, target=target, headers=given, body=body)
        answer = await forward(self._client, request, authorization)
        return RestAnswer(answer.status, answer.body, {each.name: each.value for each in answer.headers})


def _is_header(text: str) -> bool:
    """gRPC takes only such a value."""
    return len(text) <= _HEADER_CHARACTERS_MAX and all(" " <= each <= "~" for each in text)
