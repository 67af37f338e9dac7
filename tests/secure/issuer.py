"""Who signs the tokens that a secured broker takes: a key, and the file (JWKS, RFC 7517) by which brokers verify."""

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

ISSUER, AUDIENCE = "https://issuer.trueup.test", "kafka"
_KEY_ID: Final = "1"


@dataclass(frozen=True)
class Issuer:
    """Signs tokens; ``jwks`` is the file that brokers read."""

    jwks: Path
    _key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    def __post_init__(self) -> None:
        numbers = self._key.public_key().public_numbers()
        parts = {
            name: _base64(n.to_bytes((n.bit_length() + 7) // 8)) for name, n in (("n", numbers.n), ("e", numbers.e))
        }
        key = {"kty": "RSA", "kid": _KEY_ID, "use": "sig", "alg": "RS256", **parts}
        self.jwks.write_text(json.dumps({"keys": [key]}))

    def token(self, subject: str, seconds: float = 3600, **claims: Any) -> str:
        """Return a token of a user that ends in so many seconds."""
        now = int(time.time())
        said = {"sub": subject, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + seconds, **claims}
        signed = f"{_json({'alg': 'RS256', 'typ': 'JWT', 'kid': _KEY_ID})}.{_json(said)}"
        return f"{signed}.{_base64(self._key.sign(signed.encode(), padding.PKCS1v15(), SHA256()))}"


def _json(value: Mapping[str, Any]) -> str:
    return _base64(json.dumps(value).encode())


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")
