"""A site that makes its own key sends a request for a certificate; the key never travels."""

import hashlib
from pathlib import Path

from fedcompass.deployment.operator.certificates import make_key, read_key
from fedcompass.deployment.site.site_folder import valid_name
from fedcompass.errors import MissingExtra, ProjectError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
except ImportError:
    raise MissingExtra("cryptography", "deploy", "requesting a certificate") from None

__all__ = ["key_digest", "make_request", "read_request"]

_CURVES = ("secp256r1", "secp384r1")


def make_request(folder: Path) -> str:
    """Write `site.csr` for the site of the folder's name, and `site.key` unless it has one.

    Returns:
        The digest of its public key, to be compared with what the operator sees.

    Raises:
        SettingsError: the folder's name cannot be a site's.
        ProjectError: its key is damaged, or the folder cannot be written.
    """
    name = valid_name(folder.resolve().name)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / "site.key"
        key = read_key(path) if path.exists() else make_key(path)
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        request = x509.CertificateSigningRequestBuilder(subject).sign(key, hashes.SHA256())
        (folder / "site.csr").write_bytes(request.public_bytes(serialization.Encoding.PEM))
    except OSError as error:
        raise ProjectError(f"{folder} cannot be written: {error.strerror}") from None
    return key_digest(key.public_key())


def read_request(path: Path, site: str | None = None) -> ec.EllipticCurvePublicKey:
    """The key that a certificate is requested for; whoever made the request has its private half.

    Raises:
        ProjectError: it is no such request, or that of another site than the one named.
    """
    try:
        request = x509.load_pem_x509_csr(path.read_bytes())
        key = request.public_key() if request.is_signature_valid else None
    except OSError as error:
        raise ProjectError(f"request {path}: {error.strerror}") from None
    except Exception:  # the parser has many kinds of errors, and most are no ValueError
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name not in _CURVES:
        raise ProjectError(
            f"{path} is no certificate request of an EC key on {' or '.join(_CURVES)}; the site "
            "makes one with: fedcompass deploy request FOLDER"
        )
    names = [str(name.value) for name in request.subject]
    if site is not None and names and site not in names:
        raise ProjectError(f"{path} is the request of {names[0]!r}, not of {site!r}; see the name")
    return key


def key_digest(key: ec.EllipticCurvePublicKey) -> str:
    """The SHA-256 of a public key in groups of four digits, as people compare it."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    digest = hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()
    return " ".join(digest[start : start + 4] for start in range(0, len(digest), 4))
