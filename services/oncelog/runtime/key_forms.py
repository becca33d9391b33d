"""The forms in which a key file may hold its key, reduced to two: PEM of a public or private key, or a secret.

Understood: PEM; DER, as bytes or as base64 text; `data:;base64,…` and `data:,…` (Pulsar's form) around any of these;
any other content is the secret of HS256 itself.

Rules: content that other people may know must never become a secret, for whoever knows the secret can sign tokens.
So a public key is found in every form in which programs write one, and a reference to a key (`file://…`, another URL),
a token, an SSH key and a JSON web key are refused instead of being taken by their text.
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
#: RFC 7518: as long as the hash.
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
    """The PEM or the secret that `data`, the content of a key file, stands for.

    One line end after a secret does not belong to it. Raises InvalidArgument: a form that is not understood, or a
    secret that is too short or repeats itself. The error never holds the content.
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
            raise InvalidArgument("a data: URL holds another data: URL: give the key itself")
        return _read(_data_url_content(text), within_data_url=True)
    _refuse_other_forms(text)
    for candidate in (data, _base64_content(text)):
        if candidate is not None and (pem := _pem_of_der(candidate)) is not None:
            return pem
    # Bytes from a data: URL are exact; a text file ends with a line end that its editor added.
    return _checked_secret(data if within_data_url else data.removesuffix(b"\n").removesuffix(b"\r"))


def _refuse_other_forms(text: bytes) -> None:
    if _REFERENCE.match(text):
        raise InvalidArgument(
            "it holds a reference to a key (a URL such as file://…), not a key: give the path of the key's own file, "
            f"which holds {FORMS}"
        )
    if _SSH.match(text):
        raise InvalidArgument(f"it holds an SSH public key, which is no secret: convert it to PEM; understood: {FORMS}")
    if _TOKEN.fullmatch(text):
        raise InvalidArgument(f"it holds a token, not the key that signs tokens; understood: {FORMS}")
    if text.startswith(b"{") and b'"kty"' in text:
        raise InvalidArgument(f"it holds a JSON web key: convert it to PEM; understood: {FORMS}")


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
    """None: these bytes are no DER of a key. Raises InvalidArgument: they are one that is encrypted."""
    if not data or data[0] != _DER_SEQUENCE:
        return None
    try:
        return load_der_private_key(data, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    except TypeError as error:
        raise InvalidArgument("the private key is encrypted: give it without a password") from error
    except ValueError:
        pass
    try:
        return load_der_public_key(data).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    except ValueError:
        return None


def _checked_secret(secret: bytes) -> bytes:
    if len(secret) < SECRET_BYTES_MIN:
        raise InvalidArgument(
            f"a secret of {len(secret)} bytes is too short, it needs {SECRET_BYTES_MIN}: "
            f"make one with oncelog admin tokens keygen; understood: {FORMS}",
            limit=SECRET_BYTES_MIN,
        )
    if len(set(secret)) < SECRET_DISTINCT_BYTES_MIN:
        raise InvalidArgument(
            f"the secret repeats fewer than {SECRET_DISTINCT_BYTES_MIN} different bytes, so it can be guessed: "
            "make one with oncelog admin tokens keygen",
            limit=SECRET_DISTINCT_BYTES_MIN,
        )
    return secret
