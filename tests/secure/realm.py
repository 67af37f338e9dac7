"""A Kerberos realm on this machine: MIT's key distribution centre, the broker's key and those of its users."""

import importlib.util
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Final

from lab.jvm import HOST, free_port

REALM: Final = "TRUEUP.TEST"
#: What there must be.
PROGRAMS: Final = ("krb5kdc", "kdb5_util", "kadmin.local")
_CONFIG: Final = """\
[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = {host}:{port}
 }}
"""
_CENTRE: Final = """\
[kdcdefaults]
 kdc_listen = ""
 kdc_tcp_listen = {host}:{port}
[realms]
 {realm} = {{
  database_name = {directory}/principal
  key_stash_file = {directory}/stash
 }}
"""


def missing() -> str:
    """Return what tests of Kerberos lack; empty if nothing."""
    lacking = [name for name in PROGRAMS if which(name) is None]
    if lacking:
        return f"{', '.join(lacking)} missing: apt-get install krb5-kdc krb5-admin-server"
    return "" if importlib.util.find_spec("gssapi") else "the Python package gssapi is missing"


class Realm:
    """The files of a realm: ``config`` of its clients, and a keytab of each user."""

    def __init__(self, directory: Path, users: Sequence[str]) -> None:
        directory.mkdir(parents=True)
        self.directory, self.port = directory, free_port()
        self.config = directory / "krb5.conf"
        self.config.write_text(_CONFIG.format(realm=REALM, host=HOST, port=self.port))
        centre = directory / "kdc.conf"
        centre.write_text(_CENTRE.format(realm=REALM, host=HOST, port=self.port, directory=directory))
        self._environment = {**os.environ, "KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(centre)}
        self._run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
        for name in (f"kafka/{HOST}", *users):
            self._run("kadmin.local", "addprinc", "-randkey", name)
            self._run("kadmin.local", "ktadd", "-k", str(self.keytab(name)), name)

    def keytab(self, name: str) -> Path:
        """Return the file with the key of a user, or of the broker."""
        return self.directory / f"{name.partition('/')[0]}.keytab"

    def client(self, user: str, tickets: Path) -> dict[str, str]:
        """Return the environment of a program that signs in as a user and keeps its tickets in a file."""
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5_CLIENT_KTNAME": str(self.keytab(user)),
            "KRB5CCNAME": f"FILE:{tickets}",
        }

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the key distribution centre."""
        command = [which("krb5kdc") or "krb5kdc", "-n"]
        with subprocess.Popen(command, env=self._environment, stderr=subprocess.PIPE, text=True) as centre:
            assert centre.stderr is not None
            try:
                assert "starting" in centre.stderr.readline()
                yield
            finally:
                centre.terminate()

    def _run(self, *command: str) -> None:
        subprocess.run(command, env=self._environment, check=True, capture_output=True)
