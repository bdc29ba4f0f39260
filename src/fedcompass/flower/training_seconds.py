"""A mod for ClientApps: each answer says how long the training took, and whose it is."""

from collections.abc import Callable
from time import monotonic

from flwr.app import ConfigRecord, Context, Message, MessageType, MetricRecord

__all__ = ["pace_mod"]

_NAMES = ("site", "partition-id")  # of a node's config; the first that is there


def pace_mod(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """Add `seconds` of training, and the node's name, to an answer: `ClientApp(mods=[pace_mod])`.

    The server then tells the time of a step from that of starting a task, and knows a client again
    in a resumed run whose nodes have new numbers.
    """
    began = monotonic()
    reply = call_next(message, context)
    if message.metadata.message_type.startswith(MessageType.TRAIN) and not reply.has_error():
        reply.content["fedcompass.pace"] = MetricRecord({"seconds": monotonic() - began})
        name = next(
            (context.node_config[key] for key in _NAMES if key in context.node_config), None
        )
        if name is not None:
            reply.content["fedcompass.site"] = ConfigRecord({"site": str(name)})
    return reply
