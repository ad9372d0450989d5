"""The identity file, the peer ID and their spellings, against the original's."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.wire.identity import (
    IdentityCorrupt,
    PeerIdInvalid,
    base58_decode,
    base58_encode,
    decode_identity_file,
    encode_identity_file,
    identity_from_seed,
    parse_peer_id,
    peer_id_cid,
    peer_id_of,
    public_key_of,
    public_key_protobuf,
)

VECTORS: list[dict[str, str]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "wire-identity.json").read_text("utf-8")
)["vectors"]
EACH = pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["seed_hex"][:8])


@EACH
def test_a_seed_gives_the_key_the_file_and_the_peer_id_of_the_original(vector: dict[str, str]) -> None:
    identity = identity_from_seed(bytes.fromhex(vector["seed_hex"]))

    assert identity.public_key.hex() == vector["ed25519_public_hex"]
    assert encode_identity_file(identity).hex() == vector["identity_file_hex"]
    assert public_key_protobuf(identity.public_key).hex() == vector["public_key_protobuf_hex"]
    assert identity.peer_id == vector["peer_id"]
    assert base58_decode(vector["peer_id"]).hex() == vector["peer_id_bytes_hex"]
    assert peer_id_cid(identity.peer_id) == vector["peer_id_cid"]


@EACH
def test_a_file_of_the_original_is_read_back(vector: dict[str, str]) -> None:
    identity = decode_identity_file(bytes.fromhex(vector["identity_file_hex"]))

    assert identity == identity_from_seed(bytes.fromhex(vector["seed_hex"]))


@EACH
def test_both_spellings_of_a_peer_id_name_one_peer(vector: dict[str, str]) -> None:
    assert parse_peer_id(vector["peer_id"]) == vector["peer_id"]
    assert parse_peer_id(vector["peer_id_cid"]) == vector["peer_id"]
    assert public_key_of(vector["peer_id"]).hex() == vector["ed25519_public_hex"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"junk", "4 bytes"),
        (bytes.fromhex(VECTORS[0]["identity_file_hex"])[:-1], "67 bytes"),
        (bytes.fromhex(VECTORS[0]["identity_file_hex"]) + b"\n", "69 bytes"),
        (b"\x08\x00\x12\x40" + bytes(64), "type RSA"),
        (b"\x08\x02\x12\x20" + bytes(32), "type secp256k1"),
        (b"\x09" * 68, "does not begin"),
        (bytes.fromhex(VECTORS[0]["identity_file_hex"])[:-1] + b"\0", "does not belong"),
    ],
)
def test_a_corrupt_file_is_refused_and_the_error_says_what_it_is(content: bytes, says: str) -> None:
    with pytest.raises(IdentityCorrupt, match=f"is corrupt: .*{says}"):
        decode_identity_file(content)


def test_the_private_half_is_not_printed() -> None:
    identity = identity_from_seed(bytes(range(32)))

    assert repr(identity.seed) not in repr(identity)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_keys_of_another_length_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        identity_from_seed(bytes(length))
    with pytest.raises(ValueError, match="32 bytes"):
        peer_id_of(bytes(length))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "b",
        "bafz",
        VECTORS[0]["peer_id"] + "1",
        "1" + VECTORS[0]["peer_id"],
        VECTORS[0]["peer_id"][:-1],
        " " + VECTORS[0]["peer_id"],
        VECTORS[0]["peer_id_cid"].upper(),
        VECTORS[0]["peer_id_cid"] + "a",
        VECTORS[0]["peer_id_cid"] + "=",
        "bé",
        "bafkreiaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",  # a CID of something else
        "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",  # the peer ID of an RSA key
        "1" * 129,
        "z" * 5000,
    ],
)
def test_what_is_not_an_ed25519_peer_id_is_refused(text: str) -> None:
    with pytest.raises(PeerIdInvalid):
        parse_peer_id(text)


@given(st.binary(max_size=80))
def test_base58_keeps_every_byte(raw: bytes) -> None:
    assert base58_decode(base58_encode(raw)) == raw


@given(st.text(max_size=130))
def test_any_text_is_a_peer_id_or_refused(text: str) -> None:
    try:
        parsed = parse_peer_id(text)
    except PeerIdInvalid:
        return
    assert parse_peer_id(parsed) == parsed


@given(st.binary(min_size=32, max_size=32))
def test_every_key_survives_its_spellings(public_key: bytes) -> None:
    peer_id = peer_id_of(public_key)

    assert parse_peer_id(peer_id_cid(peer_id)) == peer_id
    assert public_key_of(peer_id) == public_key


@given(st.binary(max_size=100))
def test_any_bytes_are_an_identity_file_or_corrupt(content: bytes) -> None:
    try:
        identity = decode_identity_file(content)
    except IdentityCorrupt:
        return
    assert encode_identity_file(identity) == content
