"""TLS and tokens of a service, loaded from its settings and checked at its start.

    security = Security.of(settings)
    Server(security)    Channel(address, credentials=security.peers)

A certificate that is renewed on disk is used from the next connection on, by gRPC and REST. A certificate and a key
that do not belong together are not used.
"""

import logging
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from oncelog.core.access import UNCHECKED, Caller
from oncelog.core.era import Era
from oncelog.core.errors import InvalidArgument, OncelogError, StaleEra
from oncelog.runtime.credentials import PLAIN, Credentials, parse_certificates, source_of
from oncelog.runtime.observing.http_hosts import OWN_NAMES, HttpHosts
from oncelog.runtime.settings import ProcessSettings, variable
from oncelog.runtime.telemetry import Reading, Telemetry
from oncelog.runtime.tls.handshake import Expiry, expiry, refusal
from oncelog.runtime.watched_file import WatchedFile

if TYPE_CHECKING:
    from oncelog.runtime.tokens import Authenticator

logger = logging.getLogger(__name__)

_Pair = tuple[bytes, bytes]


class ServerCertificate:
    """A certificate chain and its key, on disk. Raises InvalidArgument when they cannot be used."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = WatchedFile(certificate, variable("tls_certificate_file"), parse_certificates)
        self._key = WatchedFile(key, variable("tls_key_file"), bytes)
        self._renewing = threading.Lock()
        self._pair = self._read()
        self._context = self._checked()

    def _checked(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._certificate.path, self._key.path)
        except OSError as error:  # SSLError is one
            names = f"{variable('tls_certificate_file')} and {variable('tls_key_file')}"
            reason = getattr(error, "reason", None) or error.strerror
            message = f"{names}: {self._certificate.path} and {self._key.path} do not belong together ({reason})"
            raise InvalidArgument(message, field="tls_key_file") from error
        context.set_alpn_protocols(["http/1.1"])
        return context

    @property
    def pair(self) -> tuple[bytes, bytes]:
        """Certificate chain and key that new connections use."""
        self._renew()
        return self._pair

    def _renew(self) -> None:
        """Use the files' current content. Called on the event loop and on gRPC's threads."""
        with self._renewing:
            pair = self._read()
            if pair == self._pair:
                return
            try:
                context = self._checked()
            except OncelogError as error:
                # Perhaps only one of the two files is renewed yet; the next connection checks again.
                logger.warning("cannot use the changed certificate yet: %s", error.message)
                return
            if self._read() != pair:
                return  # the pair that was checked is not the one that was read
            self._context, self._pair = context, pair
        logger.info("using a renewed certificate", extra={"fields": {"file": str(self._certificate.path)}})

    def _read(self) -> _Pair:
        return self._certificate.get(), self._key.get()

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """For one gRPC server; each new connection checks the files."""
        served: list[_Pair] = [self._pair]

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            self._renew()
            if served[0] == self._pair:
                return None
            served[0] = self._pair
            return _configuration(self._pair)

        return grpc.dynamic_ssl_server_credentials(_configuration(self._pair), fetch)  # type: ignore[arg-type]  # None: no change

    def ssl_context(self) -> ssl.SSLContext:
        """For REST; each new connection checks the files."""
        context = self._checked()

        def choose(connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
            self._renew()
            connection.context = self._context

        context.sni_callback = choose
        return context


def _configuration(pair: _Pair) -> grpc.ServerCertificateConfiguration:
    certificate, key = pair
    return grpc.ssl_server_certificate_configuration([(key, certificate)])


@dataclass(frozen=True, slots=True)
class Security:
    """certificate None: no TLS. authenticator None: no authentication. peers: for channels to other services. hosts:
    what HTTP requests may name without authentication."""

    certificate: ServerCertificate | None = None
    authenticator: "Authenticator | None" = None
    peers: Credentials = PLAIN
    hosts: HttpHosts = OWN_NAMES

    @classmethod
    def of(cls, settings: ProcessSettings) -> "Security":
        """Raises InvalidArgument, which names the variable: a missing or unusable file, a certificate that the other
        services would refuse, a key without a token, or a token that this process would refuse.
        """
        certificate = ca = token = None
        if settings.tls_certificate_file:
            certificate = ServerCertificate(Path(settings.tls_certificate_file), Path(settings.tls_key_file))
            ca = WatchedFile(Path(settings.tls_ca_file), variable("tls_ca_file"), parse_certificates)
        authenticator = _authenticator(settings)
        if settings.auth_token_file:
            token = source_of(Path(settings.auth_token_file), variable("auth_token_file"))
        # Services without TLS run on a trusted network, so their tokens may be sent unencrypted.
        peers = Credentials(certificate is not None, ca, token, plaintext_token_allowed=True)
        if certificate is not None:
            _check_own_certificate(certificate, peers, settings)
        if authenticator is not None:
            _check_own_token(authenticator, peers)
        if authenticator is not None and certificate is None:
            logger.warning("tokens are sent in plain text: set %s", variable("tls_certificate_file"))
        hosts = HttpHosts.of(settings.http_hosts, settings.advertised_host, settings.listen_host)
        return cls(certificate, authenticator, peers, hosts)

    def in_era(self, era: Era, on_stale_era: Callable[[str, StaleEra], object]) -> "Security":
        """For a service that has joined its cluster; see Credentials."""
        return replace(self, peers=replace(self.peers, era=era, on_stale_era=on_stale_era))

    def observe(self, telemetry: Telemetry) -> None:
        """Export until when the present certificate and its CA are valid. Without TLS: nothing."""
        certificate, peers = self.certificate, self.peers
        if certificate is None:
            return
        #: the files that were examined last, and what was found: an expired pair keeps its former time
        known: list[tuple[tuple[_Pair, bytes | None], Expiry | None]] = []

        def read() -> list[Reading]:
            present = certificate.pair, peers.ca.get() if peers.ca is not None else None
            if not known or known[0][0] != present:
                found = expiry(certificate.ssl_context(), *_expected(peers)) or (known[0][1] if known else None)
                known[:] = [(present, found)]
            found = known[0][1]
            if found is None:
                return []
            return [Reading(found.certificate_s, {"file": "certificate"}), Reading(found.ca_s, {"file": "ca"})]

        telemetry.observe_level("tls_expiry_timestamp_seconds", "When the TLS files of this process expire", read)

    def caller(self, authorization: str | None) -> Caller:
        """The caller, from the header `authorization`. Raises Unauthenticated."""
        return UNCHECKED if self.authenticator is None else self.authenticator.caller(authorization)

    @property
    def open_to(self) -> HttpHosts | None:
        """Which HTTP requests are taken without a token. None: authentication is on, and each needs one."""
        return self.hosts if self.authenticator is None else None


#: No TLS and no authentication, for a trusted network.
OPEN = Security()


def roles_in(text: str) -> frozenset[str]:
    """Of a setting: separated by commas."""
    return frozenset(role.strip() for role in text.split(",") if role.strip())


def _authenticator(settings: ProcessSettings) -> "Authenticator | None":
    superusers = roles_in(settings.auth_superusers)
    if settings.auth_key_file:
        # Imported here, because it loads cryptography, which slows every start.
        from oncelog.runtime.tokens import Authenticator, TokenKey

        key = WatchedFile(Path(settings.auth_key_file), variable("auth_key_file"), TokenKey.of)
        return Authenticator(key, superusers)
    if superusers:
        # Superusers without a key would suggest that other callers are refused.
        message = (
            f"{variable('auth_superusers')} needs {variable('auth_key_file')}, because without it no caller is refused"
        )
        raise InvalidArgument(message, field="auth_key_file")
    return None


def _expected(peers: Credentials) -> tuple[ssl.SSLContext, str]:
    """The context and the expected name with which another service connects to this one."""
    client, name = peers.ssl_context(), peers.expected_name
    assert client is not None
    assert name is not None, "a service that speaks TLS has a CA"
    # Services use gRPC, which is less strict than newer versions of Python.
    client.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return client, name


def _check_own_certificate(certificate: ServerCertificate, peers: Credentials, settings: ProcessSettings) -> None:
    client, name = _expected(peers)
    reason = refusal(certificate.ssl_context(), client, name)
    if reason is not None:
        raise InvalidArgument(
            f"{variable('tls_certificate_file')}: {settings.tls_certificate_file} would be refused by other services "
            f"({reason}): it must be valid, signed by the CA in {settings.tls_ca_file}, and have the name {name}",
            field="tls_certificate_file",
        )


def _check_own_token(authenticator: "Authenticator", peers: Credentials) -> None:
    name = variable("auth_token_file")
    if peers.token is None:
        message = f"{variable('auth_key_file')} needs {name}: the other services refuse a call without a token"
        raise InvalidArgument(message, field="auth_token_file")
    try:
        caller = authenticator.caller(peers.authorization)
    except OncelogError as error:
        raise InvalidArgument(f"{name}: {error.message}", field="auth_token_file") from error
    if not caller.superuser:
        message = f"{name}: role {caller.role} is none of {variable('auth_superusers')}: add it there"
        raise InvalidArgument(message, field="auth_token_file")
