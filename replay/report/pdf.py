"""The report as a PDF, printed by an installed browser."""

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from streams.config.settings import SettingsError

#: Names of Chromium's command in various packages.
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Longest time to print, s.
SECONDS: Final = 300.0


def browser() -> str:
    """Return the path of the browser; raises SettingsError if there is none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise SettingsError("--pdf needs Chromium on the PATH: install it, or print the page of --report yourself")
    return found


def printed(page: bytes) -> bytes:
    """Return a page as a PDF. Raises SettingsError if there is no browser, or if it prints nothing."""
    with TemporaryDirectory() as directory:
        source, made = Path(directory) / "report.html", Path(directory) / "report.pdf"
        source.write_bytes(page)
        command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        command += [f"--user-data-dir={directory}/profile", "--no-pdf-header-footer", f"--print-to-pdf={made}"]
        try:
            subprocess.run([*command, source.as_uri()], capture_output=True, timeout=SECONDS, check=True)  # noqa: S603 - our own page
        except (OSError, subprocess.SubprocessError) as exc:
            raise SettingsError(f"--pdf: the browser could not print: {exc}") from exc
        return made.read_bytes()
