"""The cryptography, all of it from libraries: X25519, HKDF, ChaCha20, ChaCha20-Poly1305, SHA-256.

Every derivation takes a label and the round it is for, so no key serves two purposes or two rounds.
"""

import hashlib
import json

import numpy as np

from fedcompass.errors import MissingExtra
from fedcompass.secure_aggregation.fixed_point import Words

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError:
    raise MissingExtra("cryptography", "privacy", "secure aggregation") from None

__all__ = [
    "KEY_BYTES",
    "SEED_BYTES",
    "agreed_key",
    "derived_key",
    "digest",
    "is_public_key",
    "opened",
    "public_key",
    "sealed",
    "stream",
]

SEED_BYTES = 16
"""Length of a secret that is shared out; what Shamir's scheme of the library takes."""

KEY_BYTES = 32
"""Length of every key, public key and digest."""

_ONCE = bytes(12)  # a nonce: every key here encrypts one text


def digest(label: str, *parts: str | int | bytes) -> bytes:
    """SHA-256 of a label and parts, none of which can run into the next."""
    return hashlib.sha256(_joined(label, parts)).digest()


def derived_key(secret: bytes, label: str, *parts: str | int | bytes) -> bytes:
    """A key for one purpose (HKDF with SHA-256)."""
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=_joined(label, parts)).derive(secret)


def public_key(private: bytes) -> bytes:
    """The public half of an X25519 key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def is_public_key(public: bytes) -> bool:
    """Whether bytes are a public key, and not one that agrees on the same key with everybody."""
    try:
        X25519PrivateKey.from_private_bytes(bytes(KEY_BYTES)).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError:
        return False
    return True


def agreed_key(private: bytes, public: bytes, label: str, *parts: str | int | bytes) -> bytes:
    """A key for one purpose that two members share (X25519, then HKDF)."""
    mine = X25519PrivateKey.from_private_bytes(private)
    return derived_key(mine.exchange(X25519PublicKey.from_public_bytes(public)), label, *parts)


def stream(key: bytes, count: int, dtype: np.dtype[np.unsignedinteger]) -> Words:
    """So many integers of ChaCha20's key stream; read only."""
    encryptor = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(encryptor.update(bytes(count * dtype.itemsize)), dtype=dtype)


def sealed(key: bytes, text: bytes) -> bytes:
    """Encrypt and authenticate the one text of a key."""
    return ChaCha20Poly1305(key).encrypt(_ONCE, text, None)


def opened(key: bytes, ciphertext: bytes) -> bytes | None:
    """The text, or None if it was not sealed with this key or was changed since."""
    try:
        return ChaCha20Poly1305(key).decrypt(_ONCE, ciphertext, None)
    except InvalidTag:
        return None


def _joined(label: str, parts: tuple[str | int | bytes, ...]) -> bytes:
    named = [part.hex() if isinstance(part, bytes) else part for part in parts]
    return json.dumps(["fedcompass secure aggregation 1", label, *named]).encode()
