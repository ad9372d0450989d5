"""The TLS identity that follows from the secret, byte for byte as the original's."""

import datetime
import json
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.wire.tls_identity import grpc_identity, grpc_pin, is_pinned

VECTORS: list[dict[str, str]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "wire-grpc-tls.json").read_text("utf-8")
)["vectors"]
SECRET = bytes.fromhex(VECTORS[0]["secret_hex"])
OTHER = bytes.fromhex(VECTORS[1]["secret_hex"])


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["ed25519_public_hex"][:8])
def test_certificate_and_key_equal_the_original_byte_for_byte(vector: dict[str, str]) -> None:
    secret = bytes.fromhex(vector["secret_hex"])

    identity = grpc_identity(secret)

    assert identity.certificate_der.hex() == vector["cert_der_hex"]
    assert identity.public_key.hex() == vector["ed25519_public_hex"] == grpc_pin(secret).hex()
    key = serialization.load_pem_private_key(identity.key_pem, password=None)
    seed = key.private_bytes(serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption())
    assert seed.hex() == vector["hkdf_seed_hex"]
    from_pem = x509.load_pem_x509_certificate(identity.certificate_pem)
    assert from_pem.public_bytes(serialization.Encoding.DER) == identity.certificate_der


def test_the_key_is_not_printed() -> None:
    identity = grpc_identity(SECRET)

    assert "PRIVATE" not in repr(identity)


def test_a_certificate_is_known_by_any_of_its_pins() -> None:
    certificate = grpc_identity(SECRET).certificate_der

    assert is_pinned(certificate, [grpc_pin(SECRET)])
    assert is_pinned(certificate, [grpc_pin(OTHER), grpc_pin(SECRET)])
    assert not is_pinned(certificate, [grpc_pin(OTHER)])
    assert not is_pinned(certificate, [])


def test_a_key_that_is_not_ed25519_matches_no_pin() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(2124, 1, 1, tzinfo=datetime.UTC))
        .sign(key, hashes.SHA256())
    )

    assert not is_pinned(certificate.public_bytes(serialization.Encoding.DER), [grpc_pin(SECRET)])


@given(st.binary(max_size=300))
def test_bytes_that_are_no_certificate_match_no_pin(garbage: bytes) -> None:
    assert not is_pinned(garbage, [grpc_pin(SECRET)])


@pytest.mark.parametrize("length", [0, 31])
def test_a_short_secret_is_refused_without_printing_it(length: int) -> None:
    with pytest.raises(ValueError, match=f"has {length} bytes, it needs at least 32") as caught:
        grpc_identity(b"s" * length)
    assert "sss" not in str(caught.value)
