"""Renewed certificates reach the next connection, and a broken renewal keeps the last good one."""

import asyncio
import logging
import ssl
from pathlib import Path

import pytest
import trustme

from streams.config.following_tls import FollowingContext


def issue(authority: trustme.CA, name: str, chain: Path, key: Path) -> None:
    leaf = authority.issue_cert("127.0.0.1", common_name=name)
    chain.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    key.write_bytes(leaf.private_key_pem.bytes())


def served(chain: Path, key: Path) -> FollowingContext:
    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(chain, key)
        except OSError as exc:
            raise ValueError(f"cannot load {chain}") from exc
        return context

    return FollowingContext(make, (str(chain), str(key)))


async def shown(port: int, authority: trustme.CA) -> str:
    """Return whom a server's certificate names."""
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
    try:
        subject = writer.get_extra_info("peercert")["subject"]
        await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
    return next(str(value) for part in subject for name, value in part if name == "commonName")


async def test_new_connections_see_a_renewed_certificate_and_a_broken_renewal_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority, chain, key = trustme.CA(), tmp_path / "chain.pem", tmp_path / "key.pem"
    issue(authority, "first", chain, key)
    caplog.set_level(logging.WARNING)
    async with await asyncio.start_server(lambda _, w: w.close(), "127.0.0.1", 0, ssl=served(chain, key)) as server:
        port = server.sockets[0].getsockname()[1]
        found = [await shown(port, authority)]
        half = key.read_bytes()
        issue(authority, "second", chain, key)
        renewed = key.read_bytes()
        key.write_bytes(half)  # the certificate is renewed, its key is not yet
        found.append(await shown(port, authority))
        key.write_bytes(renewed)
        found.append(await shown(port, authority))
    assert found == ["first", "first", "second"]
    assert [each.message for each in caplog.records] == [
        f"cannot load {chain}; new connections use the last content that could be read"
    ]
