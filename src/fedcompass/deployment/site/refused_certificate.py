"""What a site says of a server whose certificate is not the federation's."""

import re

__all__ = ["in_words", "refused_certificate"]

# What gRPC says of a handshake that ended at the server's certificate, and OpenSSL's reason.
_REFUSED = re.compile(r"failed to connect .*CERTIFICATE_VERIFY_FAILED(?:: (?P<why>.+?))?(?:: OK)?$")


def refused_certificate(address: str, why: str) -> str:
    """That the server at an address is somebody else, or its certificate too old; what to do."""
    return (
        f"{address} shows a certificate that is not right: {why}; "
        "check the server's address, its certificate (deploy check there) and this clock"
    )


def in_words(told: str, address: str) -> str:
    """A line about the connection, without gRPC's words about a certificate that was refused."""
    return _REFUSED.sub(lambda m: refused_certificate(address, m["why"] or "refused"), told)
