"""What a certificate says, whether it is valid today, and a warning weeks before its end."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedcompass.errors import MissingExtra, ProjectError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
except ImportError:
    raise MissingExtra("cryptography", "deploy", "reading certificates") from None

__all__ = [
    "WARNED_AHEAD",
    "CertificateFacts",
    "check_dates",
    "expiry_warnings",
    "public_key_of",
    "read_certificate",
]

WARNED_AHEAD = timedelta(weeks=8)
"""How long before its end a certificate is warned about, and `deploy renew` renews it."""


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What a certificate says about itself."""

    not_before: datetime
    not_after: datetime
    names: tuple[str, ...]


def _load(path: Path) -> x509.Certificate:
    """The certificate in a PEM file.

    Raises:
        ProjectError: it is missing or not a certificate.
    """
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise ProjectError(f"certificate {path}: {error.strerror}") from None
    except ValueError:
        raise ProjectError(f"{path} is not a PEM certificate; ask for it again") from None


def read_certificate(path: Path) -> CertificateFacts:
    """What a PEM certificate says.

    Raises:
        ProjectError: it is missing or not a certificate.
    """
    certificate = _load(path)
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = tuple(str(name.value) for name in extension.value)
    except x509.ExtensionNotFound:
        names = ()
    return CertificateFacts(
        certificate.not_valid_before_utc, certificate.not_valid_after_utc, names
    )


def public_key_of(path: Path) -> ec.EllipticCurvePublicKey:
    """The key that a certificate is for.

    Raises:
        ProjectError: it is missing, not a certificate, or for another kind of key.
    """
    key = _load(path).public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ProjectError(f"{path} is not for an EC key")
    return key


def check_dates(path: Path, remedy: str) -> CertificateFacts:
    """What a certificate says, if it is valid today.

    Args:
        path: the certificate.
        remedy: what to do about one that has expired.

    Raises:
        ProjectError: it is not, or it is no certificate.
    """
    facts = read_certificate(path)
    now = datetime.now(UTC)
    if now > facts.not_after:
        raise ProjectError(f"{path} expired on {facts.not_after:%Y-%m-%d}; {remedy}")
    if now < facts.not_before:
        raise ProjectError(
            f"{path} is valid from {facts.not_before:%Y-%m-%d %H:%M} UTC; here it is "
            f"{now:%Y-%m-%d %H:%M} UTC: is this machine's clock right?"
        )
    return facts


def expiry_warnings(paths: Iterable[Path], now: datetime, remedy: str) -> list[str]:
    """One line for each certificate that ends within eight weeks, has ended, or cannot be read.

    Args:
        paths: the certificates.
        now: the time, with its zone.
        remedy: what to do about it.
    """
    told = []
    for path in paths:
        try:
            end = read_certificate(path).not_after
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
