"""Who is connected, who they say they are, and since when someone has been away."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from fedcompass.deployment.wire.transport import MessageId, NodeId
from fedcompass.vocabulary import ClientId, Seconds

__all__ = ["Membership", "Peer"]


@dataclass(slots=True)
class Peer:
    """One connected node."""

    node: NodeId
    seen: Seconds  # when it was last connected
    ask_at: Seconds  # not to be asked who it is before this
    asked: MessageId | None = None  # the question under way
    asked_at: Seconds = 0.0
    client: ClientId | None = None  # who it is; None: to be asked, at first or again
    failures: int = 0  # questions or tasks that failed in a row
    refused: str | None = None  # why its last answer was refused; told with its next task
    has_left: bool = False  # it takes no part any more; forgotten when it is not connected


class Membership:
    """The peers by node, and which node goes by which name."""

    def __init__(self) -> None:
        self.peers: dict[NodeId, Peer] = {}
        self._owners: dict[ClientId, NodeId] = {}

    def watch(self, now: Seconds, connected: AbstractSet[NodeId]) -> None:
        """Take down who is connected now; one that has left may come back as a new peer."""
        self.peers = {n: p for n, p in self.peers.items() if n in connected or not p.has_left}
        for node in sorted(connected, key=str):
            if node in self.peers:
                self.peers[node].seen = now
            else:
                self.peers[node] = Peer(node=node, seen=now, ask_at=now)

    def excuse(self, seconds: Seconds) -> None:
        """Nobody was looked for meanwhile: it is no absence."""
        for peer in self.peers.values():
            peer.seen += seconds

    def leave(
        self,
        now: Seconds,
        gone_after: Seconds,
        is_revoked: Callable[[NodeId], bool] = lambda _: False,
    ) -> list[Peer]:
        """Forget the peers that have been away for too long, and say who they were.

        One that may not come back is not waited for.
        """
        away = [peer for peer in self.peers.values() if peer.seen < now]
        gone = [peer for peer in away if now - peer.seen > gone_after or is_revoked(peer.node)]
        for peer in gone:
            del self.peers[peer.node]
        return gone

    def to_ask(self, now: Seconds) -> list[Peer]:
        """The peers that are to be asked who they are."""
        waiting = (p for p in self.peers.values() if p.client is None and p.asked is None)
        here = (peer for peer in waiting if not peer.has_left and peer.seen == now)
        return [peer for peer in here if peer.ask_at <= now]

    def identify(self, peer: Peer, site: str | None) -> ClientId:
        """The name a peer goes by: its own unless another connected node has it.

        With key authentication a site that returns has its node's number again, and so its name.
        """
        name = site or str(peer.node)
        owner = self._owners.get(name)
        if owner is not None and owner != peer.node and owner in self.peers:
            name = f"{name}@{peer.node}"
        self._owners[name] = peer.node
        peer.client = name
        return name

    def of(self, client: ClientId) -> Peer | None:
        """The connected peer that is this client."""
        node = self._owners.get(client)
        peer = None if node is None else self.peers.get(node)
        return peer if peer is not None and peer.client == client else None
