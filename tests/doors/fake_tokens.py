"""Tokens of a cluster in memory."""

from oncelog.core.access import Caller
from oncelog.core.errors import OncelogError, Unauthenticated
from oncelog_doors.connections.ports import ProvedCaller


class FakeTokens:
    """Has a part of the form of a `ClusterPort`. tokens: {token: role}; empty: authentication is off."""

    def __init__(self, tokens: dict[str, str] | None = None) -> None:
        self.tokens = tokens or {}
        #: {token: how long it is valid}; others are for ever
        self.ends_in_ms: dict[str, int] = {}
        #: of the check of a token
        self.token_error: OncelogError | None = None

    @property
    def authentication(self) -> bool:
        return bool(self.tokens)

    async def caller_of(self, token: str, address: str) -> ProvedCaller:
        if self.token_error is not None:
            raise self.token_error
        if token not in self.tokens:
            raise Unauthenticated("the token is not valid")
        return ProvedCaller(Caller(self.tokens[token], address=address), self.ends_in_ms.get(token))
