"""The tokens in what clients send to authenticate themselves."""

import pytest

from oncelog.core.errors import InvalidName, OncelogError, Unauthenticated
from oncelog.core.names import NamespaceName
from oncelog_doors.core.kafka.sasl import OAUTHBEARER, PLAIN, Credentials, credentials_of


@pytest.mark.parametrize(
    ("mechanism", "data", "found"),
    [
        (PLAIN, b"\0me\0secret", Credentials("secret")),
        (PLAIN, b"other\0\0secret", Credentials("secret")),
        (PLAIN, b"\0shop/orders\0secret", Credentials("secret", NamespaceName("shop", "orders"))),
        (OAUTHBEARER, b"n,,\x01auth=Bearer secret\x01\x01", Credentials("secret")),
        (OAUTHBEARER, b"n,a=me,\x01host=x\x01auth=bearer secret\x01\x01", Credentials("secret")),
    ],
)
def test_tokens(mechanism: str, data: bytes, found: Credentials) -> None:
    assert credentials_of(mechanism, data) == found


@pytest.mark.parametrize(
    ("mechanism", "data", "error", "sentence"),
    [
        (PLAIN, b"secret", Unauthenticated, "SASL PLAIN has three parts, and 1 were sent"),
        (PLAIN, b"\0a\0b\0c", Unauthenticated, "SASL PLAIN has three parts, and 4 were sent"),
        (PLAIN, b"\0me\0", Unauthenticated, "the password is empty: give the token as password"),
        (PLAIN, b"\0\xff\0t", Unauthenticated, "what was sent for PLAIN is not UTF-8"),
        (PLAIN, b"\0a/b/c\0t", InvalidName, "user name: namespace must be"),
        (OAUTHBEARER, b"n,,\x01\x01", Unauthenticated, "no `auth=Bearer` with a token"),
        (OAUTHBEARER, b"", Unauthenticated, "no `auth=Bearer` with a token"),
    ],
)
def test_other_bytes_are_refused(mechanism: str, data: bytes, error: type[OncelogError], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        credentials_of(mechanism, data)
