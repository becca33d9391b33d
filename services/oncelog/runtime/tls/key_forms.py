"""The forms of a key file, converted to two: PEM of a public or private key, or a secret.

Supported are PEM; DER, as bytes or as base64 text; and `data:;base64,…` and `data:,…` (Pulsar's form) around any of
these. Any other content is a secret for HS256.

Rules: public content must never be used as a secret, because anyone who has the secret can sign tokens. Therefore
public keys are recognised in all common forms, and a reference to a key (`file://…`, another URL), a token, an SSH key
and a JSON web key are refused.
"""

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_der_public_key,
)

from oncelog.core.errors import InvalidArgument

FORMS = "a secret, PEM, DER, or one of these as data:;base64,…"
#: RFC 7518: at least as long as the hash.
SECRET_BYTES_MIN = 32
#: A random secret of 32 characters or bytes has more; a repeated character or word has fewer.
SECRET_DISTINCT_BYTES_MIN = 8

_PEM = b"-----BEGIN"
_DATA = b"data:"
_REFERENCE = re.compile(rb"(?i)(?:file|env|k8s|vault):|[a-z][a-z0-9+.-]*://")
_SSH = re.compile(rb"(?:ssh|ecdsa)-[a-z0-9@.-]+ AAAA")
_TOKEN = re.compile(rb"eyJ[\w-]+\.eyJ[\w-]+\.[\w-]*")
_DER_SEQUENCE = 0x30


def read_key_content(data: bytes) -> bytes:
    """The PEM or the secret in `data`, the content of a key file.

    One line end after a secret is removed. Raises InvalidArgument for an unsupported form, and for a secret that is too
    short or repetitive. The error never contains the content.
    """
    return _read(data, within_data_url=False)


def is_pem(content: bytes) -> bool:
    return _PEM in content


def _read(data: bytes, *, within_data_url: bool) -> bytes:
    if is_pem(data):
        return data
    text = data.strip()
    if text[: len(_DATA)].lower() == _DATA:
        if within_data_url:
            raise InvalidArgument("a data: URL contains another data: URL: give the key itself")
        return _read(_data_url_content(text), within_data_url=True)
    _refuse_other_forms(text)
    for candidate in (data, _base64_content(text)):
        if candidate is not None and (pem := _pem_of_der(candidate)) is not None:
            return pem
    # Bytes of a data: URL are exact; an editor may have added a line end to a text file.
    return _checked_secret(data if within_data_url else data.removesuffix(b"\n").removesuffix(b"\r"))


def _refuse_other_forms(text: bytes) -> None:
    if _REFERENCE.match(text):
        raise InvalidArgument(
            "the file contains a reference to a key (a URL such as file://…), not a key: give the path of the key file "
            f"itself, which contains {FORMS}"
        )
    if _SSH.match(text):
        raise InvalidArgument(f"the file contains an SSH public key: convert it to PEM; supported: {FORMS}")
    if _TOKEN.fullmatch(text):
        raise InvalidArgument(f"the file contains a token, not a key that signs tokens; supported: {FORMS}")
    if text.startswith(b"{") and b'"kty"' in text:
        raise InvalidArgument(f"the file contains a JSON web key: convert it to PEM; supported: {FORMS}")


def _data_url_content(url: bytes) -> bytes:
    head, comma, content = url.partition(b",")
    if not comma:
        raise InvalidArgument("a data: URL needs a comma before its content: data:;base64,…")
    if not head.lower().endswith(b";base64"):
        return unquote_to_bytes(content)
    try:
        return base64.b64decode(b"".join(content.split()), validate=True)
    except binascii.Error as error:
        raise InvalidArgument(f"the content of the data: URL is not base64: {error}") from error


def _base64_content(text: bytes) -> bytes | None:
    try:
        return base64.b64decode(b"".join(text.split()), validate=True)
    except binascii.Error:
        return None


def _pem_of_der(data: bytes) -> bytes | None:
    """The PEM of a key in DER; None for other bytes. Raises InvalidArgument for an encrypted key."""
    if not data or data[0] != _DER_SEQUENCE:
        return None
    try:
        return load_der_private_key(data, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    except TypeError as error:
        raise InvalidArgument("the private key is encrypted: give a key without a password") from error
    except ValueError:
        pass
    try:
        return load_der_public_key(data).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    except ValueError:
        return None


def _checked_secret(secret: bytes) -> bytes:
    if len(secret) < SECRET_BYTES_MIN:
        raise InvalidArgument(
            f"the secret is too short: it has {len(secret)} bytes and needs {SECRET_BYTES_MIN}; "
            f"make one with oncelog admin tokens keygen; supported: {FORMS}",
            limit=SECRET_BYTES_MIN,
        )
    if len(set(secret)) < SECRET_DISTINCT_BYTES_MIN:
        raise InvalidArgument(
            f"the secret has fewer than {SECRET_DISTINCT_BYTES_MIN} different bytes, so it can be guessed: "
            "make one with oncelog admin tokens keygen",
            limit=SECRET_DISTINCT_BYTES_MIN,
        )
    return secret
