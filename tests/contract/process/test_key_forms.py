"""A key file holds a key in a supported form, or the start fails: its text is never used as a secret."""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from oncelog.core.errors import InvalidArgument
from oncelog.runtime.tokens import TokenKey
from tests.contract.process.security_world import KEY, SECRET, token

RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())


def private_der(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def public_der(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def data_url(content: bytes, media_type: bytes = b"") -> bytes:
    return b"data:" + media_type + b";base64," + base64.b64encode(content)


@pytest.mark.parametrize(
    "content",
    [
        data_url(SECRET),
        data_url(SECRET) + b"\n",
        data_url(SECRET, b"application/octet-stream"),
        b"DATA:;BASE64," + base64.b64encode(SECRET),
        b"data:," + SECRET.replace(b" ", b"%20"),
        SECRET + b"\r\n",
    ],
)
def test_data_url_is_decoded_to_its_secret(content: bytes) -> None:
    """Pulsar's brokers read the same line; with its text as the secret, everyone who reads a manifest could sign
    tokens.
    """
    assert TokenKey.of(content) == KEY
    assert TokenKey.of(content).role_of(token("importer")) == "importer"


@pytest.mark.parametrize("key", [RSA, EC], ids=["RS256", "ES256"])
@pytest.mark.parametrize("wrap", [bytes, base64.b64encode, base64.encodebytes, data_url], ids=str)
def test_der_keys_are_accepted(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, wrap: object) -> None:
    """`pulsar tokens create-key-pair` writes DER. The public key must not become a secret in any of its forms."""
    assert callable(wrap)
    private, public = TokenKey.of(wrap(private_der(key))), TokenKey.of(wrap(public_der(key)))
    assert (private.algorithm, private.issues is None) == (public.algorithm, False)
    assert public.algorithm != "HS256"
    assert public.issues is None
    assert public.role_of(private.issue("importer", expires_s=60)) == "importer"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"file:///etc/oncelog/keys/secret.key\n", "reference to a key"),
        (b"file:/etc/oncelog/keys/the-secret.key", "reference to a key"),
        (b"https://keys.example/oncelog/secret.key", "reference to a key"),
        (b"env:ONCELOG_THE_SECRET_OF_THIS_CLUSTER", "reference to a key"),
        (data_url(b"file:///etc/oncelog/keys/secret.key"), "reference to a key"),
        (data_url(data_url(SECRET)), "another data: URL"),
        (b"data:;base64;AAECAwQFBgcICQ", "comma"),
        (b"data:;base64,!!!!", "not base64"),
        (data_url(b"short"), "too short"),
        (b"s" * 64, "can be guessed"),
        (b"secret" * 10, "can be guessed"),
        (RSA.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH), "SSH public key"),
        (token("root").encode(), "contains a token"),
        (b'{"kty": "oct", "k": "AAECAwQFBgcICQoLDA0ODw"}', "JSON web key"),
        (RSA.private_bytes(Encoding.DER, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")), "encrypted"),
    ],
)
def test_publicly_known_text_is_refused_as_a_secret(content: bytes, complaint: str) -> None:
    """The error says what to do and does not repeat the content."""
    with pytest.raises(InvalidArgument, match=complaint) as caught:
        TokenKey.of(content)
    assert content.decode("latin-1").strip() not in caught.value.message
