"""Makes a certificate authority (CA) for a cluster, and the certificates that it signs.

One CA signs all certificates. Each certificate carries the name `oncelog`, by which the cluster's processes verify each
other, and the names by which clients connect. Keys are P-256.
"""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from oncelog.core.errors import InvalidArgument
from oncelog.runtime.credentials import CLUSTER_NAME

CA_DAYS = 3_650
#: The servers of a ZooKeeper ensemble are clients of each other.
_USAGES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
#: Tolerated difference between two machines' clocks.
_BACKDATED = dt.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


def new_ca(*, days: int = CA_DAYS) -> KeyPair:
    """A self-signed CA that may sign server certificates, but no further CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("oncelog CA")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return _signed(builder, key, key)


def new_certificate(ca: KeyPair, names: Sequence[str], *, days: int) -> KeyPair:
    """A server's certificate for `oncelog` and `names`: DNS names, `*.example`, and IP addresses. Raises
    InvalidArgument."""
    authority = x509.load_pem_x509_certificate(ca.certificate)
    authority_key = serialization.load_pem_private_key(ca.key, None)
    if not isinstance(authority_key, ec.EllipticCurvePrivateKey):
        raise InvalidArgument("the CA's key must be an elliptic curve key", field="ca")
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in dict.fromkeys([CLUSTER_NAME, *names])])
    builder = (
        _builder(_name(CLUSTER_NAME), authority.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.ExtendedKeyUsage(_USAGES), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    return _signed(builder, key, authority_key)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass  # a DNS name
    try:
        if not name or set(name) & set(" /:,"):
            raise ValueError("invalid character in a name")
        return x509.DNSName(name)
    except ValueError as error:
        raise InvalidArgument(f"{name!r} must be a DNS name or an IP address", field="dns") from error


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, by: ec.EllipticCurvePrivateKey
) -> KeyPair:
    pem = serialization.Encoding.PEM
    return KeyPair(
        builder.sign(by, hashes.SHA256()).public_bytes(pem),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
