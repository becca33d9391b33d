"""How commands reach a cluster: four options, written once.

@takes_connection
def check(topic: ..., *, connection: Connection, timeout: TimeoutOption = 30.0) -> None:
    client = await connection.connect(timeout)
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oncelog.cli.context.use import spread_in_context
from oncelog.cli.options import DEFAULT_URL, PlaintextTokenOption, TlsCaFileOption, TokenFileOption, UrlOption

if TYPE_CHECKING:
    from oncelog.client.client import AsyncClient


@dataclass(frozen=True, slots=True)
class Connection:
    """Address and credentials. The fields are the options, in the order of the help."""

    url: UrlOption = DEFAULT_URL
    token_file: TokenFileOption = None
    tls_ca_file: TlsCaFileOption = None
    allow_plaintext_token: PlaintextTokenOption = False

    async def connect(self, timeout_s: float, *, max_message_bytes: int | None = None) -> "AsyncClient":
        """A client whose operations take at most timeout_s. max_message_bytes: of a message in chunks; None: the
        client's default. Raises OncelogError; ServiceUnavailable after LISTENS_WITHIN_S where nobody listens."""
        from oncelog.cli.listening import require_listener
        from oncelog.client.connecting import connect
        from oncelog.client.network.addresses import parse_url
        from oncelog.core.formats.chunks import CHUNKED_BYTES_DEFAULT

        client = await connect(
            self.url,
            token=self.token_file,
            tls_ca_file=self.tls_ca_file,
            allow_plaintext_token=self.allow_plaintext_token,
            operation_timeout=timeout_s,
            max_message_bytes=CHUNKED_BYTES_DEFAULT if max_message_bytes is None else max_message_bytes,
        )
        try:
            await require_listener(parse_url(self.url), timeout_s)
        except BaseException:
            await client.close(flush=False)
            raise
        return client

    def variables(self) -> dict[str, str]:
        """Of the environment. ONCELOG_ADMIN_URL belongs to the cluster of ONCELOG_URL: it is left out for another."""
        own = dict(os.environ)
        if self.url != own.get("ONCELOG_URL", DEFAULT_URL):
            own.pop("ONCELOG_ADMIN_URL", None)
        return own

    def as_job_options(self) -> dict[str, str | Path | bool | None]:
        """The same as options of a job on Spark."""
        return {
            "serviceUrl": self.url,
            "tokenFile": self.token_file,
            "tlsCaFile": self.tls_ca_file,
            "allowPlaintextToken": self.allow_plaintext_token,
        }


def takes_connection(command: Callable[..., None]) -> Callable[..., None]:
    """In the command's signature, its parameter `connection` becomes the options of a Connection."""
    return spread_in_context(command, "connection", Connection)
