"""A site signs with the key of its certificate, and believes others' by the federation's CA."""

from collections.abc import Mapping
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedcompass.deployment.wire.connections import Identity
from fedcompass.errors import MessageRefused, ProjectError
from fedcompass.vocabulary import ClientId

__all__ = ["CertificateSigner"]

_HOW = ec.ECDSA(hashes.SHA256())


class CertificateSigner:
    """A `Signer` of secure rounds.

    Args:
        identity: the site's certificate and key, and the CA it trusts.

    Raises:
        ProjectError: one of them cannot be read.
    """

    def __init__(self, identity: Identity) -> None:
        authority, _, key = identity.read()
        try:
            private = serialization.load_pem_private_key(key, None)
            self._authority = x509.load_pem_x509_certificate(authority)
        except (ValueError, TypeError):
            raise ProjectError(f"{identity.key} or ca.crt is damaged; ask for it again") from None
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ProjectError(f"{identity.key} is not an EC private key; ask for it again")
        self._private = private
        self._public: dict[ClientId, ec.EllipticCurvePublicKey] = {}

    def learn(self, certificates: Mapping[ClientId, str]) -> None:
        """Take the members' certificates from the server, which cannot make them up.

        Raises:
            MessageRefused: one is not of the federation's CA, of another name, or has expired.
        """
        self._public = {name: self._checked(name, text) for name, text in certificates.items()}

    def _checked(self, name: ClientId, text: str) -> ec.EllipticCurvePublicKey:
        try:
            certificate = x509.load_pem_x509_certificate(text.encode())
            certificate.verify_directly_issued_by(self._authority)
            usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
            key = certificate.public_key()
        except (AttributeError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            raise _not_of_a_site(name) from None
        now = datetime.now(UTC)
        names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        if (
            [each.value for each in names] != [name]
            or not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
            or x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH not in usage
            or not isinstance(key, ec.EllipticCurvePublicKey)
        ):
            raise _not_of_a_site(name)
        return key

    def sign(self, text: bytes) -> bytes:
        """Sign as this site."""
        return self._private.sign(text, _HOW)

    def verify(self, member: ClientId, text: bytes, signature: bytes) -> bool:
        """Whether that site signed this text."""
        if member not in self._public:
            return False
        try:
            self._public[member].verify(signature, text, _HOW)
        except InvalidSignature:
            return False
        return True


def _not_of_a_site(name: ClientId) -> MessageRefused:
    return MessageRefused(
        f"the certificate of {name[:80]!r} is not one of the federation's CA for that site; "
        "nothing is masked for it"
    )
