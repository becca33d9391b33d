"""A token proves a role to each holder of the key; any other token is refused."""

import hmac
import json
import logging
import time
from base64 import urlsafe_b64encode
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from oncelog.core.access import Caller
from oncelog.core.errors import InvalidArgument, InvalidName, Unauthenticated
from oncelog.runtime.tokens import TokenKey
from tests.contract.process.security_world import KEY, ROOT, SECRET, secured, token

CLAIMS: dict[str, object] = {"sub": "importer", "aud": "oncelog"}
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def pem_of(key: PrivateKey) -> tuple[bytes, bytes]:
    """(private, public)."""
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private, public


def signed(claims: dict[str, object], key: bytes | str = SECRET, algorithm: str = "HS256") -> str:
    return jwt.encode(claims, key, algorithm=algorithm)


@pytest.mark.parametrize(
    "key", [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())], ids=["RS256", "ES256"]
)
def test_public_key_verifies_tokens_of_the_private_key(key: PrivateKey) -> None:
    """A compromised service cannot issue tokens."""
    private, public = map(TokenKey.of, pem_of(key))
    assert public.role_of(private.issue("importer", expires_s=60)) == "importer"
    with pytest.raises(InvalidArgument, match="cannot sign tokens"):
        public.issue("importer", expires_s=60)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not valid"),
        ("a.b.c", "not valid"),
        ("x" * 5000, "more than 4096"),
        (signed(CLAIMS, b"another secret, also long enough, yes"), "not valid"),
        (signed(CLAIMS, algorithm="HS512"), "not valid"),
        (jwt.encode(CLAIMS, "", algorithm="none"), "not valid"),
        (signed(CLAIMS | {"exp": int(time.time()) - 60}), "has expired"),
        (signed(CLAIMS | {"nbf": int(time.time()) + 86_400}), "not valid"),
        (signed(CLAIMS | {"aud": "another"}), "not for audience"),
        (signed({"sub": "importer"}), "not valid"),
        (signed({"aud": "oncelog"}), "not valid"),
        (signed(CLAIMS | {"sub": "../x"}), "not valid"),
    ],
)
def test_invalid_token_is_refused(text: str, complaint: str) -> None:
    """The error does not repeat the token, because errors are logged and displayed."""
    with pytest.raises(Unauthenticated, match=complaint) as caught:
        KEY.role_of(text)
    assert not text or text not in caught.value.message


def test_public_key_is_never_used_as_a_secret() -> None:
    """Everyone who has the public key could sign with it. Forged by hand: libraries no longer do this."""
    _, public = pem_of(rsa.generate_private_key(65537, 2048))
    parts = [urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "HS256"}, CLAIMS)]
    signature = urlsafe_b64encode(hmac.digest(public, b".".join(parts), "sha256")).rstrip(b"=")
    with pytest.raises(Unauthenticated):
        TokenKey.of(public).role_of(b".".join([*parts, signature]).decode())


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"short", "too short"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "not a PEM"),
        (pem_of(rsa.generate_private_key(65537, 1024))[1], "2048 bits or more"),
        (pem_of(ec.generate_private_key(ec.SECP384R1()))[1], "P-256"),
    ],
)
def test_weak_and_damaged_keys_are_refused(data: bytes, complaint: str) -> None:
    """At the start, where the operator sees the error."""
    with pytest.raises(InvalidArgument, match=complaint):
        TokenKey.of(data)


def test_role_must_be_a_valid_name() -> None:
    """It is an element of REST's paths."""
    with pytest.raises(InvalidName):
        KEY.issue("a/b", expires_s=None)


@pytest.mark.parametrize("header", [None, "", "Basic cm9vdDpyb290", "Bearer "])
def test_call_without_a_token_is_refused(tmp_path: Path, header: str | None) -> None:
    """Authentication applies to every caller."""
    with pytest.raises(Unauthenticated):
        secured(tmp_path).caller(header)


def test_end_of_a_token_is_returned_with_its_role(tmp_path: Path) -> None:
    """A door closes a connection then. Without an end it is None."""
    authenticator = secured(tmp_path).authenticator
    assert authenticator is not None
    until_s = int(time.time()) + 60
    for claims, expected in ((CLAIMS | {"exp": until_s}, float(until_s)), (CLAIMS, None)):
        proved = authenticator.proved(f"Bearer {signed(claims)}")
        assert (proved.caller.role, proved.expires_s) == ("importer", expected)


def test_only_roles_in_the_settings_are_superusers(tmp_path: Path) -> None:
    """Claims of the token do not count."""
    security = secured(tmp_path)
    assert security.caller(f"Bearer {token('operator')}") == Caller("operator", superuser=True)
    assert security.caller(f"Bearer {token('importer')}") == Caller("importer", superuser=False)


def test_changed_key_file_is_used_at_once(tmp_path: Path) -> None:
    """A leaked key is replaced without a restart; a damaged replacement is not used."""
    security = secured(tmp_path)
    old = f"Bearer {token(ROOT)}"
    new_secret = b"the next secret, which is as long as the first"
    (tmp_path / "token.key").write_bytes(new_secret)
    with pytest.raises(Unauthenticated):
        security.caller(old)
    (tmp_path / "token.key").write_bytes(b"short")
    assert security.caller(f"Bearer {token(ROOT, key=TokenKey.of(new_secret))}").superuser


def test_renewed_token_file_is_used_for_the_next_call(tmp_path: Path) -> None:
    """Expiring tokens are replaced while processes run."""
    peers = secured(tmp_path).peers
    before = peers.authorization
    renewed = token(ROOT, expires_s=600)
    (tmp_path / "root.token").write_text(renewed)
    assert (before, peers.authorization) == (f"Bearer {token(ROOT)}", f"Bearer {renewed}")


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"auth_key_file": "/nowhere"}, "ONCELOG_AUTH_KEY_FILE: cannot read /nowhere"),
        ({"auth_token_file": "/nowhere"}, "ONCELOG_AUTH_TOKEN_FILE: cannot read /nowhere"),
        ({"auth_token_file": ""}, "ONCELOG_AUTH_KEY_FILE needs ONCELOG_AUTH_TOKEN_FILE"),
        ({"auth_superusers": "operator"}, "ONCELOG_AUTH_TOKEN_FILE: role root is none of ONCELOG_AUTH_SUPERUSERS"),
        ({"auth_key_file": ""}, "ONCELOG_AUTH_SUPERUSERS needs ONCELOG_AUTH_KEY_FILE"),
    ],
)
def test_unusable_settings_fail_at_the_start(tmp_path: Path, more: dict[str, str], complaint: str) -> None:
    """Each error names the variable to correct."""
    with pytest.raises(InvalidArgument, match=complaint):
        secured(tmp_path, **more)


def test_authentication_without_tls_logs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An eavesdropper on the network gets each token."""
    with caplog.at_level(logging.WARNING):
        secured(tmp_path)
    assert "plain text" in caplog.text
