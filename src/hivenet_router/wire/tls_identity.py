"""Which TLS identity follows from the shared secret? One Ed25519 key and one self-signed certificate per secret.

Invariant: the same secret gives the same certificate, byte for byte, here and in the original, so there is nothing to
store or renew. Whoever holds the secret can check the router by its public key alone; chain, name and dates of the
certificate say nothing. Sockets and ssl contexts are the adapters' work.
"""

import datetime
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hivenet_router.names.protocol_ids import TLS_COMMON_NAME, TLS_HKDF_INFO, TLS_HKDF_SALT
from hivenet_router.wire.jwt import require_long_enough

_NOT_BEFORE: Final = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
_NOT_AFTER: Final = datetime.datetime(2124, 1, 1, tzinfo=datetime.UTC)
# The library writes names as UTF8String and has no public way to ask for PrintableString, which the original uses.
_NAME: Final = x509.Name(
    [x509.NameAttribute(NameOID.COMMON_NAME, TLS_COMMON_NAME, _type=_ASN1Type.PrintableString)],
)


@dataclass(frozen=True, slots=True)
class GrpcIdentity:
    """What a router presents: the certificate (DER and PEM), its private key (PEM) and the 32-byte public key."""

    certificate_der: bytes
    certificate_pem: bytes
    key_pem: bytes = field(repr=False)
    public_key: bytes


def grpc_identity(secret: bytes) -> GrpcIdentity:
    """The TLS identity of a router that holds this secret.

    Raises: ValueError when the secret is shorter than 32 bytes.
    Source: wire.md §4.1.
    """
    key = _key(secret)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_NAME)
        .issuer_name(_NAME)
        .serial_number(1)
        .not_valid_before(_NOT_BEFORE)
        .not_valid_after(_NOT_AFTER)
        .public_key(key.public_key())
        .add_extension(_only_digital_signature(), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, algorithm=None)
    )
    return GrpcIdentity(
        certificate_der=certificate.public_bytes(Encoding.DER),
        certificate_pem=certificate.public_bytes(Encoding.PEM),
        key_pem=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        public_key=key.public_key().public_bytes_raw(),
    )


def grpc_pin(secret: bytes) -> bytes:
    """The 32-byte Ed25519 public key by which an agent recognises a router that holds this secret.

    Raises: ValueError when the secret is shorter than 32 bytes.
    """
    return _key(secret).public_key().public_bytes_raw()


def is_pinned(certificate_der: bytes, pins: Iterable[bytes]) -> bool:
    """Whether the certificate's key is one of the pins; every pin is compared, each in constant time.

    A certificate that cannot be read, or whose key is not Ed25519, matches none.
    """
    try:
        key = x509.load_der_x509_certificate(certificate_der).public_key()
    # The parser has several error types of its own; whatever it cannot read is not the router.
    except Exception:
        return False
    if not isinstance(key, Ed25519PublicKey):
        return False
    presented = key.public_bytes_raw()
    matched = False
    for pin in pins:
        matched |= hmac.compare_digest(presented, pin)
    return matched


def _key(secret: bytes) -> Ed25519PrivateKey:
    require_long_enough(secret)
    seed = HKDF(algorithm=hashes.SHA256(), length=32, salt=TLS_HKDF_SALT, info=TLS_HKDF_INFO).derive(secret)
    return Ed25519PrivateKey.from_private_bytes(seed)


def _only_digital_signature() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
