"""Certificates for the listeners of a secured broker and for its clients, made anew for each run of the tests."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

#: Encrypts the client's key; nothing that the programs print may hold it.
KEY_PASSWORD: Final = "key-Zq8pass9"  # noqa: S105 - of a key that lives as long as a test


@dataclass(frozen=True)
class Certificates:
    """PEM files: ``server`` and ``elsewhere`` hold a key with its chain, as Kafka wants them."""

    #: The authority that signed everything else, and one that signed nothing.
    authority: Path
    stranger: Path
    #: For 127.0.0.1, and for a host that is not this one.
    server: Path
    elsewhere: Path
    #: A client's certificate, and its key, encrypted.
    client: Path
    client_key: Path


def issue(directory: Path) -> Certificates:
    """Make the files in a directory."""
    authority, stranger = trustme.CA(), trustme.CA()
    made = Certificates(
        *(directory / f"{name}.pem" for name in ("authority", "stranger", "server", "elsewhere", "client", "key"))
    )
    authority.cert_pem.write_to_path(str(made.authority))
    stranger.cert_pem.write_to_path(str(made.stranger))
    for path, name in ((made.server, "127.0.0.1"), (made.elsewhere, "elsewhere.test")):
        leaf = authority.issue_cert(name)
        path.write_bytes(_pkcs8(leaf) + b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    client = authority.issue_cert("worker@trueup.test", common_name="worker")
    made.client.write_bytes(b"".join(blob.bytes() for blob in client.cert_chain_pems))
    made.client_key.write_bytes(_pkcs8(client, KEY_PASSWORD))
    return made


def _pkcs8(leaf: trustme.LeafCert, password: str | None = None) -> bytes:
    """Return a leaf's key in the one format Kafka reads."""
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
