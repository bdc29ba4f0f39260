"""What a site asks Flower's server before a run: its time, and whether it admits the site."""

import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from fedcompass.deployment.site.site_folder import SiteFolder
from fedcompass.errors import ProjectError

__all__ = ["check_admission", "check_clock", "read_private_key"]

_CONNECT = 10.0  # seconds to wait for a connection
_CLOCK = 5.0  # seconds: Flower refuses a site that is more than this ahead, or 305 behind


def read_private_key(path: Path) -> Any:
    """A site's private key.

    Raises:
        ProjectError: it is none.
    """
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except ValueError:
        raise ProjectError(f"{path} is not an OpenSSH private key; ask for a new one") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ProjectError(f"{path} is not an EC key; ask for a new one")
    return key


def check_clock(address: str, authority: Path | None) -> str:
    """Compare this clock with the server's, from the date of an answer.

    Raises:
        ProjectError: they differ too much.
    """
    import httpx

    secured = authority is not None
    url = f"{'https' if secured else 'http'}://{address}/health"
    verify: Any = ssl.create_default_context(cafile=str(authority)) if secured else False
    try:
        answer = httpx.get(url, verify=verify, timeout=_CONNECT)
        there = parsedate_to_datetime(answer.headers["date"])
    except (httpx.HTTPError, KeyError, ValueError) as error:
        raise ProjectError(f"{address} does not tell its time: {error}") from None
    ahead = (datetime.now(UTC) - there).total_seconds() - 0.5  # a date has whole seconds
    if abs(ahead) > _CLOCK:
        where = "ahead of" if ahead > 0 else "behind"
        raise ProjectError(
            f"this clock is {abs(ahead):.0f} s {where} the server's; allowed: {_CLOCK:g} s. "
            "Set it by NTP (timedatectl set-ntp true)"
        )
    return f"within {max(abs(ahead), 1.0):.0f} s of the server's"


def check_admission(site: SiteFolder) -> str:
    """Sign in as this site, and out again.

    Raises:
        ProjectError: the server does not know the key, or counts the site as connected; Flower
            says no more than 412 in either case.
    """
    import httpx
    from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    assert site.flower_key is not None
    assert site.authority is not None
    key = read_private_key(site.flower_key)
    public = key.public_key()
    proof: list[Any] = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(key, public),
    ]
    authority = site.authority.read_bytes()
    with FleetHttpClient.from_server_address(
        site.settings.server, False, authority, interceptors=proof
    ) as client:
        try:
            request = ActivateNodeRequest(
                public_key=public_key_to_bytes(public), heartbeat_interval=30.0
            )
            node = client.ActivateNode(request).node_id
            client.DeactivateNode(DeactivateNodeRequest(node_id=node))
        except httpx.HTTPStatusError as error:
            raise ProjectError(
                f"the server does not admit this site's key ({error.response.status_code}): the "
                "key is not registered there (keys/NAME.pub, then a restart of the server), or "
                "the site runs elsewhere or was killed less than a minute ago"
            ) from None
        except httpx.HTTPError as error:
            raise ProjectError(f"the server did not answer: {error}") from None
    return f"the server knows this key as node {node}"
