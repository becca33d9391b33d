"""Tokens, their keys, and certificates: made here, on files alone; no cluster is asked."""

import re
import secrets
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, ParamSpec

import typer
from rich.console import Console

from oncelog.cli.failures import explain
from oncelog.core.errors import InvalidArgument, OncelogError

P = ParamSpec("P")
#: Twice what the hash needs, in the 64 characters that survive every copy and paste.
SECRET_BYTES = 64
_DURATION = re.compile(r"([1-9][0-9]{0,8})(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

tokens = typer.Typer(help="Tokens: who may call, by roles. Made from a key, without a cluster.", no_args_is_help=True)
certificates = typer.Typer(help="A CA and certificates for TLS, for clusters that have none.", no_args_is_help=True)


def offline(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose errors are explained."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (OncelogError, OSError) as error:
            raise typer.Exit(explain(error, Console(stderr=True, highlight=False))) from error

    return run


@tokens.command("keygen")
@offline
def keygen(
    to: Annotated[Path | None, typer.Option("--to", help="Write it to this file; by default it is printed.")] = None,
) -> None:
    """Make a secret that signs and verifies tokens (HS256): ONCELOG_AUTH_KEY_FILE of the services.

    For keys of which the services hold the public half alone, make an RSA or P-256 key with any other program.
    """
    _give(secrets.token_urlsafe(SECRET_BYTES), to)


@tokens.command("create")
@offline
def create_token(
    role: Annotated[str, typer.Option("--role", help="Who it is for: 1 to 255 of A-Z a-z 0-9 _ - = : .")],
    key_file: Annotated[
        Path, typer.Option("--key-file", help="The secret, or the private key as PEM or DER.", exists=True)
    ],
    expires: Annotated[
        str | None, typer.Option("--expires", help="For how long: 45s, 15m, 12h, 30d; by default it never expires.")
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="Write it to this file; by default it is printed.")] = None,
) -> None:
    """Make a token for a role.

    oncelog admin tokens create --role importer --expires 30d --key-file token.key
    """
    from oncelog.runtime.tokens import TokenKey  # brings cryptography, which other commands need not wait for

    key = TokenKey.of(key_file.read_bytes())
    _give(key.issue(role, expires_s=None if expires is None else _seconds(expires)), to)


@tokens.command("show")
@offline
def show_token(
    token_file: Annotated[Path, typer.Argument(help="The file that holds the token.", exists=True)],
    key_file: Annotated[
        Path, typer.Option("--key-file", help="The secret, or the public key as PEM or DER.", exists=True)
    ],
) -> None:
    """Say whose token it is, and whether services with this key take it now."""
    from oncelog.runtime.tokens import TokenKey

    print(TokenKey.of(key_file.read_bytes()).role_of(token_file.read_text().strip()))


@certificates.command("create")
@offline
def create_certificates(
    directory: Annotated[Path, typer.Option("--dir", help="Where ca.crt, ca.key, tls.crt and tls.key are, or go.")],
    dns: Annotated[
        list[str] | None, typer.Option("--dns", help="A name or IP address of the cluster for clients; repeatable.")
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=3_650, help="How long the certificate holds.")] = 365,
) -> None:
    """Make tls.crt and tls.key for a cluster, signed by the CA of the directory, which is made if need be.

    Again in the same directory: a new certificate of the same CA; running services take it with their next connection.
    Keep ca.key away from the cluster: only making further certificates needs it.

    oncelog admin certificates create --dir certificates --dns oncelog.example --dns 192.0.2.7
    """
    from oncelog.runtime.certificates import KeyPair, new_ca, new_certificate, write_pem

    directory.mkdir(parents=True, exist_ok=True)
    files = {name: directory / name for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")}
    if files["ca.crt"].exists() != files["ca.key"].exists():
        raise InvalidArgument(f"{directory} has one of ca.crt and ca.key: put both there, or neither", field="dir")
    if files["ca.crt"].exists():
        ca = KeyPair(files["ca.crt"].read_bytes(), files["ca.key"].read_bytes())
    else:
        ca = new_ca()
        write_pem(files["ca.key"], ca.key, secret=True)
        write_pem(files["ca.crt"], ca.certificate, secret=False)
    pair = new_certificate(ca, dns or [], days=days)
    write_pem(files["tls.key"], pair.key, secret=True)
    write_pem(files["tls.crt"], pair.certificate, secret=False)
    print(f"tls.crt, tls.key and ca.crt are in {directory}; ca.key signs further certificates")


def _give(secret: str, to: Path | None) -> None:
    if to is None:
        print(secret)
        return
    from oncelog.runtime.certificates import write_pem

    write_pem(to, f"{secret}\n".encode(), secret=True)


def _seconds(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise InvalidArgument(f"{text!r} is no duration such as 45s, 15m, 12h or 30d", field="expires")
    return int(match[1]) * _SECONDS[match[2]]
