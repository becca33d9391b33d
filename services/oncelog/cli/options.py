"""Options that several commands share: address of the cluster, credentials, and output format."""

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from oncelog.core.errors import InvalidArgument

#: Of each option that takes a time.
LOCAL_TIME = "Without an offset it is local time."
DEFAULT_URL = "oncelog://127.0.0.1:6650"
DEFAULT_ADMIN_URL = "http://127.0.0.1:8080"


class Output(StrEnum):
    """Output format."""

    TABLE = "table"
    JSON = "json"


class WideOutput(StrEnum):
    """As Output, with a table of all columns and full values."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


class CompressionChoice(StrEnum):
    ZLIB = "zlib"
    ZSTD = "zstd"
    LZ4 = "lz4"


def finite(value: float) -> float:
    """`nan` and `inf` pass limits, and no clock takes them. Raises BadParameter."""
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no number of seconds")
    return value


UrlOption = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="ONCELOG_URL",
        help="Metadata services, oncelog[+tls]://HOST:PORT[,HOST:PORT...]. From outside of the cluster's network, use "
        "oncelog+proxy[+tls]://..., which sends all traffic through these addresses.",
    ),
]
AdminServiceUrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="ONCELOG_URL",
        help="Instead of --admin-url: the URL for producers and readers, oncelog[+proxy][+tls]://HOST:PORT.",
    ),
]
AdminUrlOption = Annotated[
    str | None,
    typer.Option(
        "--admin-url",
        envvar="ONCELOG_ADMIN_URL",
        help="REST address of a metadata service, http[s]://HOST:PORT. Default: that of --url if it is given, else "
        f"{DEFAULT_ADMIN_URL}.",
    ),
]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="table, or json for programs.")]
WideOutputOption = Annotated[
    WideOutput,
    typer.Option("-o", "--output", help="table, wide (all columns and full ids), or json for programs."),
]
MaxMessageBytesOption = Annotated[
    int | None,
    typer.Option(
        "--max-message-bytes",
        min=0,
        max=1 << 30,
        help="Largest message in chunks that is read; it takes twice its size of memory. Default: 67108864 (64 MiB).",
    ),
]
PropertyOption = Annotated[list[str] | None, typer.Option("--property", help="NAME=VALUE; may be given several times.")]
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", min=0.1, callback=finite, help="Timeout of each request to the cluster, in seconds."),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file", envvar="ONCELOG_TOKEN_FILE", exists=True, dir_okay=False, help="File with the token to send."
    ),
]
TlsCaFileOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca-file",
        envvar="ONCELOG_TLS_CA_FILE",
        exists=True,
        dir_okay=False,
        help="PEM file of the cluster's CA, for oncelog+tls:// and https://. By default the system's CAs are used.",
    ),
]
CompressionOption = Annotated[
    CompressionChoice | None,
    typer.Option(
        "--compression",
        help="Compress each batch. zstd and lz4 need the extra of that name, here and in programs that read.",
    ),
]
PlaintextTokenOption = Annotated[
    bool,
    typer.Option(
        "--allow-plaintext-token", help="Allow sending the token over an unencrypted connection to a remote host."
    ),
]


def properties_in(given: list[str]) -> dict[str, str]:
    """Of the option. Raises InvalidArgument."""
    pairs = [each.partition("=") for each in given]
    wrong = [name for name, equals, _ in pairs if not equals or not name]
    if wrong:
        raise InvalidArgument(f"--property is NAME=VALUE, not {wrong[0]!r}", field="property")
    return {name: value for name, _, value in pairs}
