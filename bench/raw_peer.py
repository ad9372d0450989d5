"""A peer that speaks frames of its own making: Noise by hand over TCP, then yamux as the test writes it.

For what no data plane of ours would send. Each has an identity of its own and blocks, so it runs in a thread.
Source: libp2p specs, noise/README.md (Noise_XX_25519_ChaChaPoly_SHA256); yamux specification; wire.md §5.
"""

import hashlib
import hmac
import socket
import struct
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

NOISE_BYTES_MAX: Final = 65_535 - 16
DATA, UPDATE, PING, GO_AWAY = range(4)
SYN, ACK, FIN, RST = 1, 2, 4, 8
_NAME: Final = b"Noise_XX_25519_ChaChaPoly_SHA256"


def _token(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode() + b"\n"


def frame(kind: int, flags: int, stream: int, length: int, payload: bytes = b"") -> bytes:
    """One yamux frame."""
    return struct.pack(">BBHII", 0, kind, flags, stream, length) + payload


class _Cipher:
    def __init__(self, key: bytes) -> None:
        self._aead = ChaCha20Poly1305(key)
        self._nonce = 0

    def _next(self) -> bytes:
        nonce = bytes(4) + self._nonce.to_bytes(8, "little")
        self._nonce += 1
        return nonce

    def seal(self, plain: bytes, ad: bytes = b"") -> bytes:
        return self._aead.encrypt(self._next(), plain, ad)

    def open(self, sealed: bytes, ad: bytes = b"") -> bytes:
        return self._aead.decrypt(self._next(), sealed, ad)


class _Handshake:
    def __init__(self) -> None:
        self.hash = self.chaining = _NAME
        self.cipher: _Cipher | None = None
        self.mix_hash(b"")

    def mix_hash(self, data: bytes) -> None:
        self.hash = hashlib.sha256(self.hash + data).digest()

    def _derive(self, secret: bytes) -> tuple[bytes, bytes]:
        first = hmac.digest(hmac.digest(self.chaining, secret, "sha256"), b"\x01", "sha256")
        return first, hmac.digest(hmac.digest(self.chaining, secret, "sha256"), first + b"\x02", "sha256")

    def mix_key(self, secret: bytes) -> None:
        self.chaining, key = self._derive(secret)
        self.cipher = _Cipher(key)

    def seal(self, plain: bytes) -> bytes:
        assert self.cipher is not None
        sealed = self.cipher.seal(plain, self.hash)
        self.mix_hash(sealed)
        return sealed

    def open(self, sealed: bytes) -> bytes:
        assert self.cipher is not None
        plain = self.cipher.open(sealed, self.hash)
        self.mix_hash(sealed)
        return plain

    def split(self) -> tuple[_Cipher, _Cipher]:
        first, second = self._derive(b"")
        return _Cipher(first), _Cipher(second)


class RawPeer:
    """One connection that got through its handshake.

    Raises: OSError where the other end does not play along.
    """

    def __init__(self, address: tuple[str, int], *, within_s: float = 20.0) -> None:
        self.socket: Final = socket.create_connection(address, timeout=within_s)
        self._buffered = b""
        try:
            self.socket.sendall(_token("/multistream/1.0.0") + _token("/noise"))
            self._exactly(len(_token("/multistream/1.0.0") + _token("/noise")))
            self._sending, self._receiving = self._shake_hands()
            self.send(_token("/multistream/1.0.0") + _token("/yamux/1.0.0"))
            while len(self._buffered) < len(_token("/multistream/1.0.0") + _token("/yamux/1.0.0")):
                self._buffered += self.receive()
        except BaseException:
            self.socket.close()
            raise

    def _shake_hands(self) -> tuple[_Cipher, _Cipher]:
        noise, own, static, identity = _Handshake(), *_keys(), Ed25519PrivateKey.generate()
        noise.mix_hash(own.public_key().public_bytes_raw())
        noise.mix_hash(b"")
        self._put(own.public_key().public_bytes_raw())
        answer = self._take()
        theirs = X25519PublicKey.from_public_bytes(answer[:32])
        noise.mix_hash(answer[:32])
        noise.mix_key(own.exchange(theirs))
        their_static = X25519PublicKey.from_public_bytes(noise.open(answer[32:80]))
        noise.mix_key(own.exchange(their_static))
        noise.open(answer[80:])
        sealed = noise.seal(static.public_key().public_bytes_raw())
        noise.mix_key(static.exchange(theirs))
        key = b"\x08\x01\x12\x20" + identity.public_key().public_bytes_raw()
        signature = identity.sign(b"noise-libp2p-static-key:" + static.public_key().public_bytes_raw())
        payload = b"\x0a" + bytes([len(key)]) + key + b"\x12" + bytes([len(signature)]) + signature
        self._put(sealed + noise.seal(payload))
        return noise.split()

    def _exactly(self, count: int) -> bytes:
        read = b""
        while len(read) < count:
            piece = self.socket.recv(count - len(read))
            if not piece:
                raise ConnectionResetError("the other end has closed")
            read += piece
        return read

    def _take(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(2), "big"))

    def _put(self, message: bytes) -> None:
        self.socket.sendall(len(message).to_bytes(2, "big") + message)

    def send(self, plain: bytes) -> None:
        """Bytes for the other end, in as few Noise frames as they fit in. Raises: OSError."""
        for start in range(0, len(plain), NOISE_BYTES_MAX):
            self._put(self._sending.seal(plain[start : start + NOISE_BYTES_MAX]))

    def receive(self) -> bytes:
        """The next bytes of the other end. Raises: OSError."""
        return self._receiving.open(self._take())

    def request(self, stream: int, head: bytes) -> None:
        """Open a stream for HTTP and send this on it. Raises: OSError."""
        payload = _token("/multistream/1.0.0") + _token("/http/1.1") + head
        self.send(frame(DATA, SYN, stream, len(payload), payload))

    def is_cut_off(self) -> bool:
        """Wait until the other end has closed; False where it has not within the time given at the start."""
        try:
            while True:
                self.receive()
        except TimeoutError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def _keys() -> tuple[X25519PrivateKey, X25519PrivateKey]:
    return X25519PrivateKey.generate(), X25519PrivateKey.generate()
