"""A federation's own certificate authority (CA), and what it signs for the server and the sites.

Secret, and readable by its owner only from the moment it exists: `ca.key` (who has it can pose as
the server; the operator keeps it, best offline), `server.key` (stays on the
server) and each `site.key` (stays at its site). Certificates and requests (`.crt`, `.csr`) are
public. A renewed certificate is for the same key, so that no secret has to travel for it.
"""

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedcompass.deployment.certificate_dates import PublicKey, read_certificate
from fedcompass.deployment.private_files import write_secret
from fedcompass.errors import MissingExtra, ProjectError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
except ImportError:
    raise MissingExtra("cryptography", "deploy", "making certificates") from None

__all__ = [
    "SIGNED_DAYS",
    "Authority",
    "make_authority",
    "make_key",
    "make_server_certificate",
    "make_site_certificate",
    "read_key",
]

SIGNED_DAYS = 398  # what TLS clients accept at most of a server
_AUTHORITY_DAYS = 3650
_BACKDATED = timedelta(hours=1)  # a site whose clock is a little slow still trusts it


class Authority:
    """The CA in a folder with `ca.key` and `ca.crt`; gives certificates in the PEM format.

    Raises:
        ProjectError: `ca.key` is not there, or is not the key of `ca.crt`.
    """

    def __init__(self, folder: Path) -> None:
        self._key = read_key(folder / "ca.key")
        certificate = read_certificate(folder / "ca.crt")
        self._subject = certificate.subject
        if self._key.public_key() != certificate.public_key():
            raise ProjectError(
                f"{folder}/ca.key is not the key of ca.crt; bring back this federation's own"
            )

    def server_certificate(
        self, public_key: PublicKey, hosts: Iterable[str], days: int = SIGNED_DAYS
    ) -> bytes:
        """A server's; loopback is always among its hosts."""
        reached = list(dict.fromkeys([*hosts, "localhost", "127.0.0.1", "::1"]))
        names = x509.SubjectAlternativeName([_alternative_name(host) for host in reached])
        builder = _builder(_named(reached[0]), self._subject, public_key, days)
        builder = builder.add_extension(names, critical=False)
        return self._signed(builder, x509.oid.ExtendedKeyUsageOID.SERVER_AUTH)

    def site_certificate(self, public_key: PublicKey, name: str, days: int = SIGNED_DAYS) -> bytes:
        """A site's; who it is for the server the roster says."""
        builder = _builder(_named(name), self._subject, public_key, days)
        return self._signed(builder, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH)

    def own_certificate(self, days: int = _AUTHORITY_DAYS) -> bytes:
        """The CA's own with later dates; who has either trusts what it has signed and will sign."""
        return _authority_certificate(self._key, self._subject, days)

    def _signed(self, builder: x509.CertificateBuilder, usage: x509.ObjectIdentifier) -> bytes:
        own = self._key.public_key()
        return _pem(
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def make_authority(folder: Path, name: str) -> None:
    """Write a new certificate authority: `ca.key` (secret) and `ca.crt`."""
    key = make_key(folder / "ca.key")
    subject = _named(f"{name} federation CA")
    (folder / "ca.crt").write_bytes(_authority_certificate(key, subject, _AUTHORITY_DAYS))


def make_server_certificate(
    authority: Path, folder: Path, hosts: Iterable[str], days: int = SIGNED_DAYS
) -> None:
    """Write `server.key` (secret) and `server.crt` into a folder, signed by the CA in another.

    Below 0 days it has expired already.

    Raises:
        ProjectError: as `Authority`; nothing was written.
    """
    signer = Authority(authority)
    key = make_key(folder / "server.key").public_key()
    (folder / "server.crt").write_bytes(signer.server_certificate(key, hosts, days))


def make_site_certificate(
    authority: Path,
    folder: Path,
    name: str,
    days: int = SIGNED_DAYS,
    own_key: PublicKey | None = None,
) -> bytes:
    """Write `site.key` (secret) and `site.crt`, and return the certificate.

    For a key that the site has made and keeps, of which `own_key` is the public half, no key is
    written.

    Raises:
        ProjectError: as `Authority`; nothing was written.
    """
    signer = Authority(authority)
    key = make_key(folder / "site.key").public_key() if own_key is None else own_key
    certificate = signer.site_certificate(key, name, days)
    (folder / "site.crt").write_bytes(certificate)
    return certificate


def make_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Write a new private key.

    Raises:
        ProjectError: there is one already.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    write_secret(
        path,
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
    return key


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A private key.

    Raises:
        ProjectError: it is missing, damaged or of another kind.
    """
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except FileNotFoundError:
        raise ProjectError(f"{path} is not here; bring it back for this") from None
    except OSError as error:
        raise ProjectError(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError):  # TypeError: it is encrypted
        raise ProjectError(f"{path} is damaged; bring back the right one") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ProjectError(f"{path} is not an EC private key; bring back the right one")
    return key


def _authority_certificate(key: ec.EllipticCurvePrivateKey, subject: x509.Name, days: int) -> bytes:
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
    own = key.public_key()
    return _pem(
        _builder(subject, subject, own, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own), critical=False)
        .sign(key, hashes.SHA256())
    )


def _named(common_name: str) -> x509.Name:
    organization = x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "fedcompass")
    return x509.Name([organization, x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name[:64])])


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: PublicKey, days: int
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


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
