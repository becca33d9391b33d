"""Options that several commands share: where the cluster is, who asks, and how to print."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_URL = "oncelog://127.0.0.1:6650"
DEFAULT_ADMIN_URL = "http://127.0.0.1:8080"


class Output(StrEnum):
    """For people, or for programs."""

    TABLE = "table"
    JSON = "json"


class WideOutput(StrEnum):
    """As Output, and a table with every column and whole values."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


UrlOption = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="ONCELOG_URL",
        help="Metadata services, oncelog[+tls]://host:port[,host:port…]; from outside of their network "
        "oncelog+proxy[+tls]://…, which leads everything through these addresses.",
    ),
]
AdminServiceUrlOption = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="ONCELOG_URL",
        help="In place of --admin-url: oncelog+proxy[+tls]://host:port, the port that producers and readers use, too.",
    ),
]
AdminUrlOption = Annotated[
    str, typer.Option("--admin-url", envvar="ONCELOG_ADMIN_URL", help="REST of a metadata service.")
]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="table: for people, json: for programs.")]
WideOutputOption = Annotated[
    WideOutput,
    typer.Option("-o", "--output", help="table: for people, wide: every column and whole ids, json: for programs."),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, help="Seconds to wait for the cluster before giving up.")
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file", envvar="ONCELOG_TOKEN_FILE", exists=True, dir_okay=False, help="File of the token to show."
    ),
]
TlsCaFileOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca-file",
        envvar="ONCELOG_TLS_CA_FILE",
        exists=True,
        dir_okay=False,
        help="PEM of the cluster's own CA, with oncelog+tls:// or https://; by default the system's CAs.",
    ),
]
PlaintextTokenOption = Annotated[
    bool, typer.Option("--allow-plaintext-token", help="Show the token without TLS, to other machines, too.")
]
