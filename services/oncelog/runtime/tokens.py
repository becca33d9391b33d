"""Tokens: JSON web tokens, `sub` the role, `aud` "oncelog", `exp` optional and always checked.

    key = TokenKey.of(Path("token.key").read_bytes())           # a secret: HS256; PEM or DER: RS256 or ES256
    token = key.issue("importer", expires_s=30 * 86_400)
    authenticator = Authenticator(WatchedFile(path, "ONCELOG_AUTH_KEY_FILE", TokenKey.of), frozenset({"root"}))
    caller = authenticator.caller("Bearer …")

Rules: the kind of key decides the one algorithm that is accepted, never the token, so neither `none` nor a public key
used as a secret is accepted. A service needs the secret or the public key; only the issuer needs the private key.
"""

import time
from dataclasses import dataclass
from typing import NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from oncelog.core.access import Caller
from oncelog.core.errors import InvalidArgument, InvalidName, Unauthenticated
from oncelog.core.names import check_part
from oncelog.runtime.tls.key_forms import is_pem, read_key_content
from oncelog.runtime.watched_file import WatchedFile

AUDIENCE = "oncelog"
RSA_BITS_MIN = 2_048
#: Tolerated difference between two machines' clocks.
LEEWAY_S = 10
TOKEN_CHARACTERS_MAX = 4_096
SCHEME = "Bearer "


class Claims(NamedTuple):
    """What a valid token says. expires_s: since 1970; None: never."""

    role: str
    expires_s: float | None


class ProvedCaller(NamedTuple):
    """The caller of a valid token, and until when the token is valid."""

    caller: Caller
    expires_s: float | None


_PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey
_PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class TokenKey:
    """verifies: the secret or public key. issues: the secret or private key; None: this key only verifies."""

    algorithm: str
    verifies: "bytes | _PublicKey"
    issues: "bytes | _PrivateKey | None"

    @classmethod
    def of(cls, data: bytes) -> "TokenKey":
        """Read a key file in any form that `runtime.key_forms` understands: PEM and DER of RSA and P-256 keys, else a
        secret of 32 bytes or more. Raises InvalidArgument.
        """
        content = read_key_content(data)
        return cls._of_pem(content) if is_pem(content) else cls("HS256", content, content)

    @classmethod
    def _of_pem(cls, data: bytes) -> "TokenKey":
        private: object = None
        try:
            if b"PRIVATE KEY-----" in data:
                private = load_pem_private_key(data, None)
                public = private.public_key()
            else:
                public = load_pem_public_key(data)
        except (ValueError, TypeError) as error:
            raise InvalidArgument("not a PEM of a public key or an unencrypted private key") from error
        issues = private if isinstance(private, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) else None
        if isinstance(public, rsa.RSAPublicKey) and public.key_size >= RSA_BITS_MIN:
            return cls("RS256", public, issues)
        if isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, ec.SECP256R1):
            return cls("ES256", public, issues)
        raise InvalidArgument(f"unsupported key: use RSA with {RSA_BITS_MIN} bits or more, or P-256")

    def issue(self, role: str, *, expires_s: int | None) -> str:
        """A token for `role`. expires_s None: never. Raises InvalidName; InvalidArgument with a public key."""
        if self.issues is None:
            raise InvalidArgument("a public key cannot sign tokens: give the secret or the private key")
        claims: dict[str, object] = {"sub": check_part(role, field="role"), "aud": AUDIENCE, "iat": int(time.time())}
        if expires_s is not None:
            claims["exp"] = int(time.time()) + expires_s
        return jwt.encode(claims, self.issues, algorithm=self.algorithm)

    def role_of(self, token: str) -> str:
        """As `claims_of`."""
        return self.claims_of(token).role

    def claims_of(self, token: str) -> Claims:
        """What a valid token says. Raises Unauthenticated, whose message never contains the token."""
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise Unauthenticated(f"the token has more than {TOKEN_CHARACTERS_MAX} characters")
        try:
            claims = jwt.decode(
                token,
                self.verifies,
                algorithms=[self.algorithm],
                audience=AUDIENCE,
                leeway=LEEWAY_S,
                options={"require": ["sub", "aud"]},
            )
            expires_s = float(claims["exp"]) if "exp" in claims else None
            return Claims(check_part(claims["sub"], field="role"), expires_s)
        except jwt.ExpiredSignatureError as error:
            raise Unauthenticated("the token has expired: get a new one") from error
        except jwt.InvalidAudienceError as error:
            raise Unauthenticated(f"the token is not for audience {AUDIENCE!r}: get one that is") from error
        except (jwt.InvalidTokenError, InvalidName) as error:
            raise Unauthenticated("the token is not valid here: get one from this cluster's administrator") from error


class Authenticator:
    """Authenticates callers by their tokens."""

    def __init__(self, key: WatchedFile[TokenKey], superusers: frozenset[str]) -> None:
        self._key = key
        self._superusers = superusers

    def caller(self, authorization: str | None) -> Caller:
        """As `proved`."""
        return self.proved(authorization).caller

    def proved(self, authorization: str | None) -> ProvedCaller:
        """authorization: the whole header, "Bearer …". Raises Unauthenticated."""
        if not authorization:
            raise Unauthenticated("authentication required: send a bearer token")
        if not authorization.startswith(SCHEME):
            raise Unauthenticated("authentication required: send the token as `Authorization: Bearer …`")
        claims = self._key.get().claims_of(authorization.removeprefix(SCHEME).strip())
        return ProvedCaller(Caller(claims.role, superuser=claims.role in self._superusers), claims.expires_s)
