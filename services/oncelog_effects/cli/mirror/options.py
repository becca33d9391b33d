"""Options of the commands of a mirror: two clusters, and which topics."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.cli.options import PlaintextTokenOption
from oncelog.cli.parameters import parameters_of, spread_parameter
from oncelog.core.names import parse_namespace, parse_topic

if TYPE_CHECKING:
    from oncelog.client.client import AsyncClient
    from oncelog_effects.mirror.topics import Choice

TokenFile = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="File with the token for that cluster.")
]
CaFile = Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="PEM file of that cluster's CA.")]
_MESSAGES_URL = "URL of the {}, as --url of other commands."


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The fields are the options, in the order of the help."""

    target_url: Annotated[str, typer.Option("--to", help=_MESSAGES_URL.format("target"))]
    to_token_file: TokenFile = None
    to_tls_ca_file: CaFile = None
    allow_plaintext_token: PlaintextTokenOption = False

    @asynccontextmanager
    async def target(self, timeout_s: float) -> "AsyncIterator[AsyncClient]":
        """timeout_s: of each operation."""
        async with await self._client(self.target_url, self.to_token_file, self.to_tls_ca_file, timeout_s) as client:
            yield client

    async def _client(self, url: str, token: Path | None, ca_file: Path | None, timeout_s: float) -> "AsyncClient":
        from oncelog.client.connecting import connect

        return await connect(
            url, token=token, tls_ca_file=ca_file, allow_plaintext_token=self.allow_plaintext_token,
            operation_timeout=timeout_s,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Clusters(Target):
    """Both."""

    source_url: Annotated[str, typer.Option("--from", help=_MESSAGES_URL.format("source"))]
    from_token_file: TokenFile = None
    from_tls_ca_file: CaFile = None

    @asynccontextmanager
    async def source(self, timeout_s: float) -> "AsyncIterator[AsyncClient]":
        """timeout_s: of each operation."""
        async with await self._client(
            self.source_url, self.from_token_file, self.from_tls_ca_file, timeout_s
        ) as client:
            yield client


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which topics. The fields are the options."""

    topics: Annotated[list[str] | None, typer.Option("--topic", help="A topic of the mirror; may be repeated.")] = None
    namespace: Annotated[str | None, typer.Option(help="All topics of this namespace, also later ones.")] = None
    pattern: Annotated[
        str | None,
        typer.Option(
            help="Only topics of the namespace (default: public/default) whose name there matches this expression."
        ),
    ] = None

    def choice(self) -> "Choice":
        """Raises typer.BadParameter, InvalidName."""
        from oncelog_effects.mirror.topics import Choice

        if bool(self.topics) == (self.namespace is not None or self.pattern is not None):
            raise typer.BadParameter("give --topic, or --namespace or --pattern")
        if self.topics:
            return Choice(tuple(dict.fromkeys(map(parse_topic, self.topics))))
        try:
            compiled = None if self.pattern is None else re.compile(self.pattern)
        except re.error as error:
            raise typer.BadParameter(f"--pattern is not a regular expression: {error}") from error
        return Choice(namespace=parse_namespace(self.namespace or "public/default"), pattern=compiled)


def takes_clusters(command: Callable[..., None]) -> Callable[..., None]:
    """In the command's signature, its parameters `clusters` and `chosen` become the options of both."""
    for name, options in (("clusters", Clusters), ("chosen", Chosen)):
        command = _spread(command, name, options)
    return command


def takes_target(command: Callable[..., None]) -> Callable[..., None]:
    """The same for its parameter `to`."""
    return _spread(command, "to", Target)


def _spread(command: Callable[..., None], name: str, options: type) -> Callable[..., None]:
    return spread_parameter(command, name, parameters_of(options), lambda given: options(**given))
