"""A site's calls, one at a time: a model fetched, an answer handed in, and why a call ended."""

import asyncio
from pathlib import Path
from typing import Any

import grpc

from fedcompass.deployment.wire import federation_pb2 as pb
from fedcompass.deployment.wire.arriving import ArrivingFile, OneBehind
from fedcompass.deployment.wire.connections import SERVICE, Identity, open_channel
from fedcompass.deployment.wire.decoding import PIECE_BYTES, read_answer_reply, read_piece
from fedcompass.deployment.wire.limits import Limits
from fedcompass.deployment.wire.short_texts import one_line
from fedcompass.errors import FedcompassError, WireError
from fedcompass.vocabulary import Seconds

__all__ = ["GONE", "UNSENT", "fetch", "hand_in", "is_admitted", "why_ended", "write"]

GONE = {grpc.StatusCode.NOT_FOUND}
"""The task was given up meanwhile."""

UNSENT = grpc.StatusCode.INTERNAL
"""A call ended while something was being sent: gRPC then hides what status the server gave."""


async def write(call: Any, message: Any) -> None:
    """Send a message.

    Raises:
        grpc.aio.AioRpcError: the call is over.
        WireError: likewise, in order.
    """
    try:
        await call.write(message.SerializeToString())
    except asyncio.InvalidStateError:  # the call is over: its status says why
        await call.read()
        raise WireError("the server has ended the call; connecting again") from None


async def fetch(channel: Any, task: pb.Task, file: ArrivingFile, limits: Limits) -> None:
    """Fetch what is missing of a task's model.

    Raises:
        grpc.aio.AioRpcError: the call failed.
        WireError: the server sends something else.
        OSError: the disk, or the server is too slow.
    """
    request = pb.ModelRequest(task=task.id, offset=file.offset)
    call = channel.unary_stream(f"/{SERVICE}/FetchModel")(request.SerializeToString())
    came = file.offset
    try:
        async with OneBehind() as writing:
            while came < file.size:
                async with asyncio.timeout(limits.stall):
                    raw = await call.read()
                if raw is grpc.aio.EOF:
                    raise WireError("the server sent less of the model than it announced")
                piece = read_piece(raw)
                await writing.do(asyncio.to_thread(file.add, piece))
                came += len(piece)
    finally:
        call.cancel()


async def hand_in(channel: Any, answer: pb.Answer, payload: Path, limits: Limits) -> pb.Receipt:
    """Send an answer, from where an earlier try stopped; its receipt.

    Raises:
        grpc.aio.AioRpcError: the call failed.
        WireError: the server gives no receipt.
        OSError: the disk, or the server is too slow.
    """
    call = channel.stream_stream(f"/{SERVICE}/Submit")()
    try:
        await write(call, pb.AnswerPart(answer=answer))
        reply = await _reply(call)
        if reply.WhichOneof("kind") == "proceed":
            with payload.open("rb", buffering=0) as file:
                file.seek(reply.proceed.offset)
                while data := file.read(PIECE_BYTES):
                    async with asyncio.timeout(limits.stall):
                        await write(call, pb.AnswerPart(data=data))
            reply = await _reply(call)
    finally:
        call.cancel()
    if reply.WhichOneof("kind") != "receipt" or reply.receipt.task != answer.task:
        raise WireError("the server gave no receipt for an answer; it is kept")
    return reply.receipt


async def _reply(call: Any) -> pb.AnswerReply:
    raw = await call.read()
    if raw is grpc.aio.EOF:
        raise WireError("the server ended the call without a receipt; the answer is kept")
    return read_answer_reply(raw)


async def is_admitted(
    address: str, identity: Identity, proxy: str | None = None, timeout: Seconds = 20.0
) -> None:
    """See that the server knows a site's certificate; nothing changes there.

    Raises:
        WireError: it does not, or there is no connection.
    """
    request = pb.ModelRequest(task="0" * 22)  # a task that nobody has
    async with open_channel(address, identity, proxy) as channel:
        call = channel.unary_stream(f"/{SERVICE}/FetchModel")(
            request.SerializeToString(), timeout=timeout
        )
        try:
            await call.read()
        except grpc.aio.AioRpcError as error:
            if error.code() not in GONE:
                raise WireError(why_ended(error)) from None


def why_ended(error: Exception) -> str:
    """Why a connection or a call ended, in one line; what is no matter of either is raised."""
    match error:
        case grpc.aio.AioRpcError() if error.code() is grpc.StatusCode.UNAVAILABLE:
            return one_line(f"no connection to the server: {error.details()}")
        case grpc.aio.AioRpcError() if error.code() is UNSENT:
            return "the server ended a call before all was sent (its log may say why); trying again"
        case grpc.aio.AioRpcError():
            return one_line(f"{error.code().name.lower().replace('_', ' ')}: {error.details()}")
        case TimeoutError():
            return "the server has been silent for too long; connecting again"
        case FedcompassError() | OSError():
            return one_line(str(error))
        case _:
            raise error
