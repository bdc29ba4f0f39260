"""A site's side of secure rounds: it masks its kept updates, and offers none a second time."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

from fedcompass.deployment.wire.connections import SERVICE, Identity
from fedcompass.deployment.wire.kept_updates import KeptUpdates
from fedcompass.deployment.wire.site_signer import CertificateSigner
from fedcompass.deployment.wire.sum_parts import Begin, lacking, parts_of, read_begin, read_whole
from fedcompass.errors import EncodingError, WireError
from fedcompass.secure_aggregation.member import MaskingMember
from fedcompass.secure_aggregation.message_codec import to_bytes, to_member
from fedcompass.secure_aggregation.messages import (
    FromMember,
    KeysAdvertised,
    KeysListed,
    SharesRevealed,
)
from fedcompass.secure_aggregation.vectors import weighted_vector
from fedcompass.vocabulary import ClientId, Seconds

__all__ = ["SumMember"]

_MOST_BYTES = 1 << 24  # of a message of the server, which carries no vector
_PATIENCE: Seconds = 300.0  # for the others, in each phase


class SumMember:
    """Takes part in one round at a time; a round's secrets live in this process only."""

    def __init__(
        self,
        name: ClientId,
        identity: Identity,
        kept: KeptUpdates,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._kept, self._notice = kept, notice
        self._signer = CertificateSigner(identity)
        self._member = MaskingMember.from_json(name, self._signer, os.urandom, kept.rounds)

    async def take_part(self, channel: Any, call_id: str) -> None:
        """Answer the server's messages until the round is over for this site.

        Raises:
            FedcompassError: a message is not right; the site leaves the round.
        """
        call = channel.stream_stream(f"/{SERVICE}/Sum")()
        try:
            await _send(call, call_id.encode())
            first = await _read(call)
            if first is None:
                return
            begin = read_begin(first)
            answer = await asyncio.to_thread(self._begun, begin)
            if isinstance(answer, bytes):
                await _send(call, answer)
                await call.done_writing()
                return
            await _send(call, to_bytes(answer))
            while (raw := await _read(call)) is not None:
                for reply in await asyncio.to_thread(self._answers, raw, begin):
                    await _send(call, to_bytes(reply))
        finally:
            call.cancel()

    def _begun(self, begin: Begin) -> KeysAdvertised | bytes:
        """Enter the round, or say which updates are not here."""
        updates, missing = [], []
        for task, weights in begin.tasks.items():
            update = self._kept.update(begin.terms.run, task)
            if update is None:
                missing.append(task)
            else:
                updates.append((update, weights))
        if missing:
            return lacking(missing)
        try:
            vector = weighted_vector(updates, begin.max_norm)
            keys = self._member.begin(begin.terms, vector, 1.0)
        except EncodingError as error:
            self._notice(f"an update cannot be summed: {error}")
            return lacking(list(begin.tasks))
        self._kept.note_rounds(self._member.to_json())
        return keys

    def _answers(self, raw: bytes, begin: Begin) -> list[FromMember]:
        message, head = to_member(raw)
        if isinstance(message, KeysListed):
            self._signer.learn(head.get("certificates", {}))
        answers = self._member.handle(message)
        if any(isinstance(answer, SharesRevealed) for answer in answers):
            self._kept.spend(begin.terms.run, begin.tasks)
        return answers


async def _read(call: Any) -> bytes | None:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await read_whole(call.read, _MOST_BYTES)
    except TimeoutError:
        raise WireError(
            "a sum was not opened in time; updates that were not revealed wait for the next"
        ) from None


async def _send(call: Any, message: bytes) -> None:
    for part in parts_of(message):
        await call.write(part)
