"""A service whose certificate the other services would refuse does not start."""

import datetime as dt
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from oncelog.core.errors import InvalidArgument
from oncelog.runtime.security import Security
from oncelog.runtime.settings import MetadataSettings, load
from oncelog.runtime.tls.certificates import new_ca
from tests.contract.process.security_world import tls_environment

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


@cache
def rsa_keys() -> tuple[rsa.RSAPrivateKey, rsa.RSAPrivateKey]:
    """Of the CA, and of the service; once, for they take long."""
    first, second = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    return first, second


def foreign_certificate(directory: Path, names: Sequence[str], *, until: dt.datetime) -> None:
    """Such as a company's own CA makes, in place of what is there: RSA, and its own choice of names."""
    ca_key, key = rsa_keys()
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "our own CA")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])

    def signed(name: x509.Name, public: rsa.RSAPublicKey, extension: x509.ExtensionType) -> bytes:
        builder = x509.CertificateBuilder(issuer, name, public, x509.random_serial_number(), NOW - 3 * DAY, until)
        certificate = builder.add_extension(extension, critical=True).sign(ca_key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)

    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    (directory / "ca.crt").write_bytes(signed(issuer, ca_key.public_key(), x509.BasicConstraints(True, None)))
    (directory / "tls.crt").write_bytes(signed(subject, key.public_key(), alternatives))
    pem, pkcs8, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (directory / "tls.key").write_bytes(key.private_bytes(pem, pkcs8, plain))


def start(environment: dict[str, str]) -> None:
    Security.of(load(MetadataSettings, environment))


def test_certificate_of_another_ca_is_refused_at_the_start(tmp_path: Path) -> None:
    """With a Secret of a former CA each service would listen, but no service could connect to another."""
    environment = tls_environment(tmp_path)
    (tmp_path / "ca.crt").write_bytes(new_ca().certificate)
    with pytest.raises(InvalidArgument, match=r"ONCELOG_TLS_CERTIFICATE_FILE: .*tls\.crt .* by the CA in .*ca\.crt"):
        start(environment)


def test_certificate_without_the_cluster_name_is_refused_at_the_start(tmp_path: Path) -> None:
    """Services verify each other by this name; a company's CA does not add it by itself."""
    environment = tls_environment(tmp_path)
    foreign_certificate(tmp_path, ["oncelog-metadata.logs.svc"], until=NOW + DAY)
    with pytest.raises(InvalidArgument, match=r"not valid for 'oncelog'.*have the name oncelog"):
        start(environment)
    foreign_certificate(tmp_path, ["oncelog"], until=NOW + DAY)
    start(environment)


def test_expired_certificate_is_refused_at_the_start(tmp_path: Path) -> None:
    """With a separate message, because this cause is clear without a look at the Secret."""
    environment = tls_environment(tmp_path)
    foreign_certificate(tmp_path, ["oncelog"], until=NOW - DAY)
    with pytest.raises(InvalidArgument, match=r"certificate has expired.*must be valid"):
        start(environment)
