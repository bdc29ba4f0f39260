"""A federation's own certificate authority, the server's certificate and each site's key.

Private files are readable by their owner only, from the moment they exist.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedcompass.deployment.private_files import write_secret
from fedcompass.errors import MissingExtra, ProjectError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
except ImportError:
    raise MissingExtra("cryptography", "deploy", "making certificates") from None

__all__ = [
    "CertificateFacts",
    "check_dates",
    "make_authority",
    "make_server_certificate",
    "make_site_certificate",
    "make_site_key",
    "read_certificate",
]

_AUTHORITY_DAYS = 3650
_SERVER_DAYS = 398  # what TLS clients accept at most of a server
_BACKDATED = timedelta(hours=1)  # a site whose clock is a little slow still trusts it


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What a certificate says about itself."""

    subject: str
    not_before: datetime
    not_after: datetime
    names: tuple[str, ...]


def make_authority(folder: Path, name: str, days: int = _AUTHORITY_DAYS) -> None:
    """Write a new certificate authority: `ca.key` (secret) and `ca.pem`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(f"{name} federation CA")
    builder = _builder(subject, subject, key.public_key(), days)
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_secret(folder / "ca.key", _private_pem(key))
    (folder / "ca.pem").write_bytes(_certificate_pem(certificate))


def make_server_certificate(
    authority: Path, folder: Path, hosts: Iterable[str], days: int = _SERVER_DAYS
) -> None:
    """Write `server.key` (secret) and `server.pem`, signed by the authority in `authority`.

    Args:
        authority: the folder with `ca.key` and `ca.pem`.
        folder: where to write.
        hosts: names and addresses by which sites reach the server; loopback is always added.
        days: how long it is valid from now; below 0 it has expired already.

    Raises:
        ProjectError: `ca.key` is not there, or is not the key of `ca.pem`; nothing was written.
    """
    reached = list(dict.fromkeys([*hosts, "localhost", "127.0.0.1", "::1"]))
    usage = x509.oid.ExtendedKeyUsageOID.SERVER_AUTH
    _sign(authority, folder / "server", reached[0], reached, usage, days)


def make_site_certificate(
    authority: Path, folder: Path, name: str, days: int = _SERVER_DAYS
) -> None:
    """Write `site.key` (secret) and `site.pem`, by which a site proves who it is.

    Args:
        authority: the folder with `ca.key` and `ca.pem`.
        folder: where to write.
        name: the site's; who it is for the server the roster says.
        days: how long it is valid from now; below 0 it has expired already.

    Raises:
        ProjectError: `ca.key` is not there, or is not the key of `ca.pem`; nothing was written.
    """
    usage = x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH
    _sign(authority, folder / "site", name, [], usage, days)


def _sign(
    authority: Path,
    path: Path,
    subject: str,
    hosts: list[str],
    usage: x509.ObjectIdentifier,
    days: int,
) -> None:
    """Write a new key and its certificate, `path` with .key and .pem."""
    signer, parent = _authority(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_named(subject), parent.subject, key.public_key(), days)
    if hosts:
        names = x509.SubjectAlternativeName([_alternative_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    write_secret(path.with_name(f"{path.name}.key"), _private_pem(key))
    path.with_name(f"{path.name}.pem").write_bytes(_certificate_pem(certificate))


def make_site_key(private: Path, public: Path) -> None:
    """Write a site's identity: an EC key pair in the OpenSSH form that SuperNodes read."""
    key = ec.generate_private_key(ec.SECP384R1())
    encoding, forms = serialization.Encoding, serialization.PublicFormat
    write_secret(
        private,
        key.private_bytes(
            encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        ),
    )
    public.write_bytes(key.public_key().public_bytes(encoding.OpenSSH, forms.OpenSSH) + b"\n")


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


def read_certificate(path: Path) -> CertificateFacts:
    """What a PEM certificate says.

    Raises:
        ProjectError: it is missing or not a certificate.
    """
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise ProjectError(f"certificate {path}: {error.strerror}") from None
    except ValueError:
        raise ProjectError(f"{path} is not a PEM certificate; ask for it again") from None
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = tuple(str(name.value) for name in extension.value)
    except x509.ExtensionNotFound:
        names = ()
    return CertificateFacts(
        certificate.subject.rfc4514_string(),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        names,
    )


def _authority(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """An authority's key and certificate, once it is sure that they belong together."""
    path = folder / "ca.key"
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    except FileNotFoundError as error:
        raise ProjectError(
            f"{error.filename} is not here; bring it back for this: it signs the certificate"
        ) from None
    except ValueError:
        raise ProjectError(f"{path} or ca.pem is damaged; bring back the right one") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ProjectError(f"{path} is not an EC private key; bring back the right one")
    if key.public_key() != certificate.public_key():
        raise ProjectError(f"{path} is not the key of ca.pem; bring back this federation's own")
    return key, certificate


def _named(common_name: str) -> x509.Name:
    organization = x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "fedcompass")
    return x509.Name([organization, x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name[:64])])


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    start = now - _BACKDATED if days >= 0 else now + timedelta(days=days - 1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(now + timedelta(days=days))
    )


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
