"""What a certificate says, who signed it, whether it is valid today, and when it ends soon."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

from fedcompass.errors import MissingExtra, ProjectError

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
except ImportError:
    raise MissingExtra("cryptography", "deploy", "reading certificates") from None

__all__ = [
    "WARNED_AHEAD",
    "PublicKey",
    "check_dates",
    "check_signed_by",
    "expiry_warnings",
    "hosts_of",
    "public_key_of",
    "read_certificate",
]

PublicKey: TypeAlias = ec.EllipticCurvePublicKey
"""The kind of key that certificates are for."""

WARNED_AHEAD = timedelta(weeks=8)
"""How long before its end a certificate is warned about, and `deploy renew` renews it."""


def read_certificate(
    path: Path, remedy: str = "bring it back, or ask for it again"
) -> x509.Certificate:
    """The certificate in a PEM file.

    Raises:
        ProjectError: it is missing or not a certificate, and what to do: the remedy.
    """
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise ProjectError(f"certificate {path}: {error.strerror}; {remedy}") from None
    except ValueError:
        raise ProjectError(f"{path} is not a PEM certificate; {remedy}") from None


def hosts_of(certificate: x509.Certificate) -> list[str]:
    """The names and addresses that a server's certificate is for."""
    try:
        hosts = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return [str(host.value) for host in hosts.value]


def public_key_of(path: Path) -> PublicKey:
    """The key that a certificate is for.

    Raises:
        ProjectError: it is missing, not a certificate, or for another kind of key.
    """
    key = read_certificate(path).public_key()
    if not isinstance(key, PublicKey):
        raise ProjectError(f"{path} is not for an EC key")
    return key


def check_dates(path: Path, remedy: str) -> x509.Certificate:
    """A certificate that is valid today.

    Raises:
        ProjectError: it is not, and what to do: the remedy; or it is no certificate.
    """
    certificate, now = read_certificate(path, remedy), datetime.now(UTC)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        raise ProjectError(f"{path} expired on {end:%Y-%m-%d}; {remedy}")
    if now < begin:
        raise ProjectError(
            f"{path} is valid from {begin:%Y-%m-%d %H:%M} UTC; here it is "
            f"{now:%Y-%m-%d %H:%M} UTC: is this machine's clock right?"
        )
    return certificate


def check_signed_by(authority: Path, path: Path, remedy: str) -> None:
    """Refuse a certificate that another federation's CA has signed.

    Raises:
        ProjectError: it is one, and what to do: the remedy; or one of both is no certificate.
    """
    try:
        read_certificate(path, remedy).verify_directly_issued_by(read_certificate(authority))
    except (ValueError, TypeError, InvalidSignature):  # another name, kind of key, or key
        raise ProjectError(
            f"{path} is not signed by {authority.name} beside it, but of another federation or an "
            f"earlier one; {remedy}"
        ) from None


def expiry_warnings(paths: Iterable[Path], now: datetime, remedy: str) -> list[str]:
    """One line for each certificate that ends within eight weeks, has ended, or cannot be read."""
    told = []
    for path in paths:
        try:
            end = read_certificate(path).not_valid_after_utc
        except ProjectError as error:
            told.append(str(error))
            continue
        left = end - now
        if left <= timedelta(0):
            told.append(f"{path} expired on {end:%Y-%m-%d}; {remedy}")
        elif left <= WARNED_AHEAD:
            days = "1 day" if left.days == 1 else f"{left.days} days"
            told.append(f"{path} expires on {end:%Y-%m-%d}, in {days}; {remedy}")
    return told
