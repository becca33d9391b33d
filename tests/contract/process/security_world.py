"""Keys, tokens and certificates for tests, and what services make of them."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from oncelog.runtime.security import Security
from oncelog.runtime.settings import MetadataSettings, load
from oncelog.runtime.tls.certificates import KeyPair, new_ca, new_certificate
from oncelog.runtime.tokens import TokenKey

SECRET = b"a secret of the tests, which is long enough for every hash there is"
KEY = TokenKey.of(SECRET)
ROOT = "root"


def token(role: str, *, key: TokenKey = KEY, expires_s: int | None = None) -> str:
    """The same at each call, unless it expires: a token contains the second in which it is issued."""
    return _lasting_token(role, key) if expires_s is None else key.issue(role, expires_s=expires_s)


@cache
def _lasting_token(role: str, key: TokenKey) -> str:
    return key.issue(role, expires_s=None)


def bearer(role: str) -> dict[str, str]:
    """The header of a request by `role`."""
    return {"Authorization": f"Bearer {token(role)}"}


def auth_environment(directory: Path) -> dict[str, str]:
    """The variables that turn authentication on; the files are in `directory`."""
    (directory / "token.key").write_bytes(SECRET + b"\n")
    (directory / "root.token").write_text(token(ROOT) + "\n")
    return {
        "ONCELOG_AUTH_KEY_FILE": str(directory / "token.key"),
        "ONCELOG_AUTH_TOKEN_FILE": str(directory / "root.token"),
        "ONCELOG_AUTH_SUPERUSERS": f"{ROOT}, operator",
    }


def tls_environment(directory: Path, *, names: Sequence[str] = ()) -> dict[str, str]:
    """The variables that turn TLS on, with a new CA; the files are in `directory`."""
    ca = new_ca()
    (directory / "ca.crt").write_bytes(ca.certificate)
    renew(directory, ca, names=names)
    return {
        "ONCELOG_TLS_CERTIFICATE_FILE": str(directory / "tls.crt"),
        "ONCELOG_TLS_KEY_FILE": str(directory / "tls.key"),
        "ONCELOG_TLS_CA_FILE": str(directory / "ca.crt"),
    }


def renew(directory: Path, ca: KeyPair, *, names: Sequence[str] = ()) -> None:
    """A new certificate of this CA in place of the one that is there."""
    pair = new_certificate(ca, names, days=1)
    (directory / "tls.key").write_bytes(pair.key)
    (directory / "tls.crt").write_bytes(pair.certificate)


def with_tls(directory: Path, *, names: Sequence[str] = ()) -> Security:
    """A service that speaks TLS and asks nobody who he is."""
    return Security.of(load(MetadataSettings, tls_environment(directory, names=names)))


def secured(directory: Path, **more: str) -> Security:
    """A service with authentication; more: further variables without their prefix, over those."""
    environment = auth_environment(directory) | {f"ONCELOG_{name.upper()}": value for name, value in more.items()}
    return Security.of(load(MetadataSettings, environment))


def new_pair(directory: Path, days: int) -> None:
    """A certificate, its key and a new CA, in place of those that are there. days: until the certificate expires."""
    ca = new_ca()
    pair = new_certificate(ca, (), days=days)
    for name, content in (("ca.crt", ca.certificate), ("tls.key", pair.key), ("tls.crt", pair.certificate)):
        (directory / name).write_bytes(content)
