"""Who may take part: a file of names and certificates' fingerprints, read again when it changes."""

import hashlib
import re
import ssl
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedcompass.errors import ProjectError

__all__ = ["SiteRoster", "RosterFile", "fingerprint_of", "read_roster", "roster_text"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_MOST_BYTES = 1 << 22
_HEADER = (
    "# Who may take part: a site's name and the SHA-256 fingerprints of its certificates\n"
    "# (openssl x509 -noout -sha256 -fingerprint -in site.crt). The server reads this file again\n"
    "# when it changes: a site whose line is removed is cut off within seconds. The commands\n"
    "# `fedcompass deploy add-site | revoke-site | renew` write it anew, without your own notes.\n"
)


@dataclass(frozen=True, slots=True)
class SiteRoster:
    """The sites by the fingerprint of their certificate."""

    names: Mapping[str, str]

    @property
    def fingerprints(self) -> dict[str, list[str]]:
        """Those of each site, as `roster_text` takes them; several while one is being renewed."""
        listed: dict[str, list[str]] = {}
        for fingerprint, name in self.names.items():
            listed.setdefault(name, []).append(fingerprint)
        return listed


def fingerprint_of(certificate: bytes) -> str:
    """The SHA-256 fingerprint of a PEM certificate, as lower-case hex digits.

    Raises:
        ProjectError: it is no certificate in the PEM format.
    """
    try:
        der = ssl.PEM_cert_to_DER_cert(certificate.decode("ascii").strip())
    except ValueError:
        raise ProjectError("not a certificate in the PEM format") from None
    return hashlib.sha256(der).hexdigest()


def roster_text(sites: Mapping[str, list[str]]) -> str:
    """A roster file for these sites' fingerprints."""
    lines = [f'"{name}" = {prints!r}\n'.replace("'", '"') for name, prints in sites.items()]
    return _HEADER + "".join(lines)


def read_roster(text: str) -> SiteRoster:
    """The roster in a file's text.

    Raises:
        ProjectError: a name or fingerprint is none, or two sites share a certificate.
    """
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # of long integers and deep lists, too
        raise ProjectError(f"not TOML: {error}") from None
    names: dict[str, str] = {}
    for name, listed in table.items():
        if _NAME.fullmatch(name) is None:
            raise ProjectError(f"{name[:80]!r} is no site's name; allowed: {_NAME.pattern}")
        for fingerprint in _fingerprints(name, listed):
            other = names.setdefault(fingerprint, name)
            if other != name:
                raise ProjectError(
                    f"{other} and {name} have the same certificate; give each its own"
                )
    return SiteRoster(names)


def _fingerprints(name: str, listed: object) -> list[str]:
    """What is listed for a site, in the form of `fingerprint_of`."""
    if not isinstance(listed, list):
        raise ProjectError(f'{name} has no list of fingerprints; write {name} = ["..."]')
    found = []
    for item in listed:
        text = item if isinstance(item, str) else f"a {type(item).__name__}"
        found.append(text.replace(":", "").lower())
        if _FINGERPRINT.fullmatch(found[-1]) is None:
            raise ProjectError(
                f"{name}: {text[:80]!r} is no SHA-256 fingerprint; allowed: 64 hex digits in quotes"
            )
    return found


class RosterFile:
    """The roster on disk; a damaged one changes nothing until it is mended.

    Raises:
        ProjectError: it is missing or damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None  # inode, mtime and size of what was read
        self.roster = SiteRoster({})
        problem = self.refresh()
        if problem is not None:
            raise ProjectError(problem)

    def refresh(self) -> str | None:
        """Read the file if it has changed; one line if it cannot be, once for each change."""
        try:
            found = self._path.stat()
            now = (found.st_ino, found.st_mtime_ns, found.st_size)
            if now == self._seen:
                return None
            self._seen = now
            if found.st_size > _MOST_BYTES:
                raise ProjectError(f"it has {found.st_size} bytes; allowed: {_MOST_BYTES}")
            self.roster = read_roster(self._path.read_text(encoding="utf-8"))
        except OSError as error:
            return self._problem(f"{error.strerror}")
        except UnicodeDecodeError:
            return self._problem("not a text in UTF-8")
        except ProjectError as error:
            return self._problem(str(error))
        return None

    def _problem(self, what: str) -> str:
        return f"roster {self._path}: {what}; the sites stay as they were until it is mended"
