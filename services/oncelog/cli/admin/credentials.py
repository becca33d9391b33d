"""Commands that create tokens, their keys and certificates from files, without a cluster."""

import re
import secrets
from pathlib import Path
from typing import Annotated

import typer

from oncelog.cli.failures import offline
from oncelog.core.errors import InvalidArgument
from oncelog.runtime.whole_file import replace_file

#: Twice the block size that HS256 needs, in URL-safe characters.
SECRET_BYTES = 64
_DURATION = re.compile(r"([1-9][0-9]{0,8})(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

tokens = typer.Typer(help="Create and check tokens from a key file, without a cluster.", no_args_is_help=True)
certificates = typer.Typer(help="Create a CA and TLS certificates, without a cluster.", no_args_is_help=True)


@tokens.command("keygen")
@offline
def keygen(
    to: Annotated[Path | None, typer.Option("--to", help="Write to this file. By default it is printed.")] = None,
) -> None:
    """Create a secret key that signs and verifies tokens (HS256), for ONCELOG_AUTH_KEY_FILE of the services.

    If the services should have only a public key, create an RSA or P-256 key pair with another tool.
    """
    if to is not None and to.exists():
        raise InvalidArgument(
            f"{to} exists: a new key would invalidate all tokens of the old one; remove it first, or name another file",
            field="to",
        )
    _give(secrets.token_urlsafe(SECRET_BYTES), to)


@tokens.command("create")
@offline
def create_token(
    role: Annotated[str, typer.Option("--role", help="Role: 1 to 255 of A-Z a-z 0-9 _ - = : .")],
    key_file: Annotated[
        Path, typer.Option("--key-file", help="File with the secret key, or a private key as PEM or DER.", exists=True)
    ],
    expires: Annotated[
        str | None,
        typer.Option("--expires", help="Validity: 45s, 15m, 12h or 30d. By default the token never expires."),
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="Write to this file. By default it is printed.")] = None,
) -> None:
    """Create a token for a role.

    oncelog admin tokens create --role importer --expires 30d --key-file token.key
    """
    from oncelog.runtime.tokens import TokenKey  # loads cryptography, which is slow

    key = TokenKey.of(key_file.read_bytes())
    _give(key.issue(role, expires_s=None if expires is None else _seconds(expires)), to)


@tokens.command("show")
@offline
def show_token(
    token_file: Annotated[Path, typer.Argument(help="File with the token.", exists=True)],
    key_file: Annotated[
        Path, typer.Option("--key-file", help="File with the secret key, or a public key as PEM or DER.", exists=True)
    ],
) -> None:
    """Verify a token with this key, and print its role."""
    from oncelog.runtime.tokens import TokenKey

    print(TokenKey.of(key_file.read_bytes()).role_of(token_file.read_text().strip()))


@certificates.command("create")
@offline
def create_certificates(
    directory: Annotated[Path, typer.Option("--dir", help="Directory for ca.crt, ca.key, tls.crt and tls.key.")],
    dns: Annotated[
        list[str] | None, typer.Option("--dns", help="Host name or IP address of the cluster for clients. Repeatable.")
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=3_650, help="Validity of the certificate, in days.")] = 365,
) -> None:
    """Create tls.crt and tls.key for a cluster, signed by the CA in the directory. The CA is created if necessary.

    Run the command again in the same directory to create a new certificate of the same CA. Running services use it
    for their next connection. Keep ca.key outside of the cluster: it is only needed to create certificates.

    oncelog admin certificates create --dir certificates --dns oncelog.example --dns 192.0.2.7
    """
    from oncelog.runtime.tls.certificates import KeyPair, new_ca, new_certificate

    directory.mkdir(parents=True, exist_ok=True)
    files = {name: directory / name for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")}
    if files["ca.crt"].exists() != files["ca.key"].exists():
        raise InvalidArgument(
            f"{directory} has only one of ca.crt and ca.key: add the other one, or remove both", field="dir"
        )
    if files["ca.crt"].exists():
        ca = KeyPair(files["ca.crt"].read_bytes(), files["ca.key"].read_bytes())
    elif there := [name for name in ("tls.crt", "tls.key") if files[name].exists()]:
        raise InvalidArgument(
            f"{directory} has {' and '.join(there)} but no CA: add ca.crt and ca.key to renew the certificate, remove "
            f"{' and '.join(there)}, or name another directory",
            field="dir",
        )
    else:
        ca = new_ca()
        replace_file(files["ca.key"], ca.key, secret=True)
        replace_file(files["ca.crt"], ca.certificate, secret=False)
    pair = new_certificate(ca, dns or [], days=days)
    replace_file(files["tls.key"], pair.key, secret=True)
    replace_file(files["tls.crt"], pair.certificate, secret=False)
    print(f"wrote tls.crt and tls.key to {directory}; ca.crt is for clients, ca.key signs further certificates")


def _give(secret: str, to: Path | None) -> None:
    if to is None:
        print(secret)
        return
    replace_file(to, f"{secret}\n".encode(), secret=True)


def _seconds(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise InvalidArgument(
            f"{text!r} is not a valid duration: use a value such as 45s, 15m, 12h or 30d", field="expires"
        )
    return int(match[1]) * _SECONDS[match[2]]
