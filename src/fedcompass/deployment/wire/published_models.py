"""Models that sites may fetch, by the SHA-256 of their bytes; in the server's memory.

A restarted server publishes the same models again, with the tasks that start from them.
"""

import hashlib
from collections.abc import Collection, Iterator

from fedcompass.deployment.wire.arriving import Pieces
from fedcompass.deployment.wire.decoding import PIECE_BYTES

__all__ = ["PublishedModels"]


class PublishedModels:
    """The bytes of models as they were handed over: not copied, so nobody may change them."""

    def __init__(self) -> None:
        self._models: dict[str, list[bytes | memoryview]] = {}  # by digest

    def publish(self, pieces: Pieces) -> tuple[str, int]:
        """Let a model be fetched; its digest and size."""
        model, found = list(pieces), hashlib.sha256()
        for piece in model:
            found.update(piece)
        self._models[found.hexdigest()] = model
        return found.hexdigest(), sum(map(len, model))

    def __contains__(self, digest: str) -> bool:
        return digest in self._models

    def pieces(self, digest: str, offset: int) -> Iterator[bytes]:
        """A model that is here from an offset on, in pieces as they are sent."""
        return _cut(self._models[digest], offset)

    def keep_only(self, digests: Collection[str]) -> None:
        """Forget all other models."""
        self._models = {d: model for d, model in self._models.items() if d in digests}


def _cut(model: list[bytes | memoryview], offset: int) -> Iterator[bytes]:
    """The bytes after an offset in pieces of one length, however those of the model are cut."""
    parts, room = list[bytes | memoryview](), PIECE_BYTES
    for piece in model:
        begin = min(offset, len(piece))
        offset -= begin
        while begin < len(piece):
            parts.append(piece[begin : begin + room])
            begin, room = begin + len(parts[-1]), room - len(parts[-1])
            if room == 0:
                yield b"".join(parts)
                parts, room = [], PIECE_BYTES
    if parts:
        yield b"".join(parts)
