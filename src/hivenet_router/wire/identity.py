"""Who is a peer? The identity key file, the public key and the peer ID are three spellings of one Ed25519 key.

Invariant: an `Identity` holds a seed and the public key that belongs to it, so its peer ID is always right. Only
Ed25519 is spoken. Reading, locking and writing the file is the caller's work; so is making a fresh seed.
"""

import base64
import binascii
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SEED_BYTES: Final = 32
PUBLIC_KEY_BYTES: Final = 32
IDENTITY_FILE_BYTES: Final = 68
PEER_ID_CHARS_MAX: Final = 128
"""Longer text is refused unread: decoding base58 takes time that grows with the square of the length."""

# PrivateKey{Type: Ed25519, Data: 64 bytes} and PublicKey{Type: Ed25519, Data: 32 bytes} in libp2p's protobuf.
_PRIVATE_KEY_HEAD: Final = bytes.fromhex("08011240")
_PUBLIC_KEY_HEAD: Final = bytes.fromhex("08011220")
# Identity multihash of the 36-byte public key protobuf.
_MULTIHASH_HEAD: Final = bytes.fromhex("0024")
# CIDv1 with the codec libp2p-key.
_CID_HEAD: Final = bytes.fromhex("0172")
_PEER_ID_HEAD: Final = _MULTIHASH_HEAD + _PUBLIC_KEY_HEAD

_KEY_TYPES: Final = {0: "RSA", 2: "secp256k1", 3: "ECDSA"}

_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGIT_OF: Final = {letter: digit for digit, letter in enumerate(_ALPHABET)}


class IdentityCorrupt(ValueError):
    """The identity file does not hold an Ed25519 key; the text says what it holds instead."""


class PeerIdInvalid(ValueError):
    """The text is not the peer ID of an Ed25519 key."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An Ed25519 key pair; made by `identity_from_seed` or `decode_identity_file`."""

    seed: bytes = field(repr=False)
    public_key: bytes

    @property
    def peer_id(self) -> str:
        """The peer ID of this key as base58btc text."""
        return peer_id_of(self.public_key)


def identity_from_seed(seed: bytes) -> Identity:
    """The key pair of a 32-byte seed.

    Raises: ValueError when the seed has another length.
    """
    if len(seed) != SEED_BYTES:
        raise ValueError(f"an Ed25519 seed has {SEED_BYTES} bytes, this one has {len(seed)}")
    return Identity(seed, Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw())


def encode_identity_file(identity: Identity) -> bytes:
    """The 68 bytes of the identity file: the whole file, no text around it.

    Source: wire.md §2.
    """
    return _PRIVATE_KEY_HEAD + identity.seed + identity.public_key


def decode_identity_file(content: bytes) -> Identity:
    """The key pair in an identity file.

    Raises: IdentityCorrupt when the content is anything but 68 bytes of one Ed25519 key whose halves agree.
    Source: wire.md §2 (the original also loads other key types; it never makes them).
    """
    if not content.startswith(_PRIVATE_KEY_HEAD) or len(content) != IDENTITY_FILE_BYTES:
        raise IdentityCorrupt(f"identity file is corrupt: {_what_it_is_instead(content)}")
    seed = content[len(_PRIVATE_KEY_HEAD) :][:SEED_BYTES]
    identity = identity_from_seed(seed)
    if identity.public_key != content[-PUBLIC_KEY_BYTES:]:
        raise IdentityCorrupt("identity file is corrupt: its public half does not belong to its private half")
    return identity


def _what_it_is_instead(content: bytes) -> str:
    if not content:
        return "it is empty"
    if len(content) >= 2 and content[0] == 0x08 and content[1] in _KEY_TYPES:
        return f"it holds a key of type {_KEY_TYPES[content[1]]}, only Ed25519 is supported"
    if len(content) != IDENTITY_FILE_BYTES:
        return f"it has {len(content)} bytes, an Ed25519 key file has {IDENTITY_FILE_BYTES}"
    return "it does not begin like an Ed25519 private key"


def public_key_protobuf(public_key: bytes) -> bytes:
    """The 36-byte libp2p protobuf of an Ed25519 public key.

    Raises: ValueError when the key has not 32 bytes.
    """
    if len(public_key) != PUBLIC_KEY_BYTES:
        raise ValueError(f"an Ed25519 public key has {PUBLIC_KEY_BYTES} bytes, this one has {len(public_key)}")
    return _PUBLIC_KEY_HEAD + public_key


def peer_id_of(public_key: bytes) -> str:
    """The peer ID of a 32-byte Ed25519 public key as base58btc text (`12D3KooW…`), the one spelling used inside.

    Raises: ValueError when the key has not 32 bytes.
    """
    return base58_encode(_MULTIHASH_HEAD + public_key_protobuf(public_key))


def public_key_of(peer_id: str) -> bytes:
    """The 32-byte Ed25519 public key that a peer ID (either spelling) contains.

    Raises: PeerIdInvalid.
    """
    return _peer_id_bytes(peer_id)[-PUBLIC_KEY_BYTES:]


def parse_peer_id(text: str) -> str:
    """The base58btc spelling of a peer ID given in base58btc or as CIDv1 text (`bafz…`).

    Raises: PeerIdInvalid when the text is neither, or names a key that is not Ed25519.
    Source: wire.md §2.
    """
    return base58_encode(_peer_id_bytes(text))


def peer_id_cid(peer_id: str) -> str:
    """The CIDv1 spelling of a peer ID: base32, lower case, no padding.

    Raises: PeerIdInvalid.
    """
    cid = base64.b32encode(_CID_HEAD + _peer_id_bytes(peer_id)).decode("ascii")
    return "b" + cid.lower().rstrip("=")


def _peer_id_bytes(text: str) -> bytes:
    if len(text) > PEER_ID_CHARS_MAX:
        raise PeerIdInvalid(f"a peer ID has at most {PEER_ID_CHARS_MAX} characters, this text has {len(text)}")
    try:
        # A base58 peer ID of an Ed25519 key begins with `1` (the leading zero byte), a CID with its multibase `b`.
        raw = _from_cid(text) if text.startswith("b") else base58_decode(text)
    except ValueError as error:
        raise PeerIdInvalid(f"not a peer ID: {error}") from error
    if not raw.startswith(_PEER_ID_HEAD) or len(raw) != len(_PEER_ID_HEAD) + PUBLIC_KEY_BYTES:
        raise PeerIdInvalid("not the peer ID of an Ed25519 key")
    return raw


def _from_cid(text: str) -> bytes:
    digits = text[1:]
    if not digits.isascii() or digits != digits.lower():
        raise ValueError("CIDv1 text is lower-case base32")
    try:
        raw = base64.b32decode(digits.upper() + "=" * (-len(digits) % 8))
    except binascii.Error as error:
        raise ValueError("CIDv1 text is lower-case base32") from error
    if base64.b32encode(raw).decode("ascii").lower().rstrip("=") != digits:
        raise ValueError("CIDv1 text with stray bits at its end")
    if not raw.startswith(_CID_HEAD):
        raise ValueError("a CID, but not of a libp2p key")
    return raw[len(_CID_HEAD) :]


def base58_encode(raw: bytes) -> str:
    """Bytes as base58btc text, each leading zero byte as one `1`."""
    number = int.from_bytes(raw, "big")
    letters: list[str] = []
    while number:
        number, digit = divmod(number, 58)
        letters.append(_ALPHABET[digit])
    zeros = len(raw) - len(raw.lstrip(b"\0"))
    return "1" * zeros + "".join(reversed(letters))


def base58_decode(text: str) -> bytes:
    """The bytes of base58btc text; the caller bounds its length.

    Raises: ValueError at a character outside the alphabet.
    """
    number = 0
    for letter in text:
        digit = _DIGIT_OF.get(letter)
        if digit is None:
            raise ValueError(f"{letter!r} is not a base58 digit")
        number = number * 58 + digit
    zeros = len(text) - len(text.lstrip("1"))
    return b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")
