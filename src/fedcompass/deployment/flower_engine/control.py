"""What the operator's side asks of a SuperLink: register sites, submit a run, see who is there."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeVar

from fedcompass.deployment.flower_engine.runtime import expect_loopback_certificate
from fedcompass.errors import MissingExtra, ProcessFailed, ProjectError
from fedcompass.vocabulary import Seconds

if TYPE_CHECKING:
    from flwr.supercore.control import ControlHttpClient

__all__ = ["Control", "Node", "read_public_key"]

_Q = TypeVar("_Q")
_A = TypeVar("_A")


@dataclass(frozen=True, slots=True)
class Node:
    """A registered site, as the SuperLink sees it."""

    id: int
    name: str
    online: bool
    public_key: bytes


class Control:
    """A connection to a SuperLink's run control.

    Args:
        address: host:port, on this machine.
        token: what the SuperLink asks for.
        authority: the CA certificate; None on a loopback without TLS.
    """

    def __init__(self, address: str, token: str, authority: Path | None) -> None:
        self._address = address
        self._client: ControlHttpClient = _client(address, token, authority)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def wait_until_ready(self, alive: Callable[[], bool], patience: Seconds = 60.0) -> None:
        """Return when the SuperLink answers.

        Raises:
            ProcessFailed: it died, or does not answer in time.
        """
        import httpx

        until = monotonic() + patience
        while alive() and monotonic() < until:
            try:
                self.nodes()
            except (ProcessFailed, httpx.HTTPError):
                sleep(0.1)
            else:
                return
        what = "does not answer" if alive() else "died"
        raise ProcessFailed(f"the SuperLink at {self._address} {what}; see superlink.log")

    def nodes(self) -> list[Node]:
        """The sites that are registered now."""
        from flwr.proto.control_pb2 import ListNodesRequest

        answer = self._ask(self._client.ListNodes, ListNodesRequest())
        return [
            Node(info.node_id, info.name, info.status == "online", info.public_key)
            for info in answer.nodes_info
            if info.status != "unregistered"
        ]

    def register(self, keys: Mapping[str, bytes]) -> dict[str, int]:
        """Make these sites, and no others, known; gives each its node id, which stays the same.

        Args:
            keys: public keys by the site's name, from `read_public_key`.
        """
        from flwr.proto.control_pb2 import RegisterNodeRequest, UnregisterNodeRequest

        known = {}
        for node in self.nodes():
            if keys.get(node.name) == node.public_key:
                known[node.name] = node.id
            else:  # withdrawn, or given a new key
                self._ask(self._client.UnregisterNode, UnregisterNodeRequest(node_id=node.id))
        for name, key in keys.items():
            if name not in known:
                entry = RegisterNodeRequest(public_key=key, name=name)
                known[name] = self._ask(self._client.RegisterNode, entry).node_id
        return known

    def start_run(self, fab: bytes) -> int:
        """Submit a run of an app; gives its id."""
        from flwr.common.serde import fab_to_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.supercore.fab import Fab

        bundle = Fab(hashlib.sha256(fab).hexdigest(), fab, {})
        request = StartRunRequest(fab=fab_to_proto(bundle))
        answer = self._ask(self._client.StartRun, request)
        if not answer.HasField("run_id"):
            raise ProcessFailed(f"the SuperLink at {self._address} refused the run; see its log")
        return int(answer.run_id)

    def _ask(self, call: Callable[[_Q], _A], request: _Q) -> _A:
        """Make a call; what the SuperLink refuses becomes one line."""
        import httpx

        try:
            return call(request)
        except httpx.HTTPStatusError as error:
            raise ProcessFailed(
                f"the SuperLink at {self._address} refused: {error.response.status_code} "
                f"{error.response.text[:200]}"
            ) from None


def read_public_key(path: Path) -> bytes:
    """A site's public key as the SuperLink wants it.

    Raises:
        ProjectError: the file is missing or not an EC public key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    try:
        key = load_ssh_public_key(path.read_bytes())
    except OSError as error:
        raise ProjectError(f"public key {path}: {error.strerror}") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ProjectError(f"{path} is not an OpenSSH public key") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ProjectError(f"{path} is not an EC key; `fedcompass deploy init` makes one")
    encoded: bytes = public_key_to_bytes(key)
    return encoded


def _client(address: str, token: str, authority: Path | None) -> "ControlHttpClient":
    try:
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    except ImportError:
        raise MissingExtra("flwr", "deploy", "a deployment") from None

    class Bearer:
        """Shows the token with every request."""

        def intercept(self, context: Any, call_next: Any) -> Any:
            context.request.headers["Authorization"] = f"Bearer {token}"
            return call_next(context)

    client = ControlHttpClient.from_server_address(
        server_address=address,
        insecure=authority is None,
        root_certificates=None if authority is None else authority.read_bytes(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI"), Bearer()],
    )
    expect_loopback_certificate(client)
    return client
