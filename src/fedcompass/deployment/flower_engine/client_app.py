"""A site's Flower ClientApp: hands every message on to the site's worker, and loads no torch.

The worker's socket is the node's setting `worker`: `--node-config 'worker="/run/…/worker.sock"'`.
"""

from collections.abc import Callable

from fedcompass.deployment.flower_engine.flower_transport import arrays_of, facts_of, record_of
from fedcompass.deployment.site import forwarder
from fedcompass.deployment.wire.messages import Facts, one_line, without_folders
from fedcompass.errors import FedcompassError, MissingExtra, SettingsError

try:
    from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.common.constant import ErrorCode
except ImportError:
    raise MissingExtra("flwr", "deploy", "a deployment") from None

__all__ = ["answer_query", "answer_train", "app"]

_METRICS = ("steps_done", "seconds", "num-examples", "loss")  # numbers a Flower user looks for

app = ClientApp()
"""What a SuperNode calls."""


@app.query()
def answer_query(message: Message, context: Context) -> Message:
    """Say who this site is and how many samples it has."""

    def ask() -> RecordDict:
        facts = forwarder.query(_worker(context), facts_of(message.content))
        return RecordDict({"config": ConfigRecord(dict(facts))})

    return _answered(message, ask)


@app.train()
def answer_train(message: Message, context: Context) -> Message:
    """Have the worker train as many steps as it is told, and send the end model."""

    def ask() -> RecordDict:
        order = facts_of(message.content), arrays_of(message.content)
        facts, arrays = forwarder.train(_worker(context), *order)
        config: Facts = {key: value for key, value in facts.items() if key not in _METRICS}
        metrics = {
            key: value for key in _METRICS if isinstance(value := facts.get(key), int | float)
        }
        return RecordDict(
            {
                "arrays": record_of(arrays),
                "metrics": MetricRecord(dict(metrics)),
                "config": ConfigRecord(dict(config)),
            }
        )

    return _answered(message, ask)


def _answered(message: Message, ask: Callable[[], RecordDict]) -> Message:
    """The reply; what went wrong is an answer too, in one line instead of a traceback."""
    try:
        return Message(ask(), reply_to=message)
    except (FedcompassError, ValueError) as error:
        reason = one_line(without_folders(f"{type(error).__name__}: {error}"))
        code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
        return Message(Error(code=code, reason=reason), reply_to=message)


def _worker(context: Context) -> str:
    worker = context.node_config.get("worker")
    if not isinstance(worker, str) or not worker:
        raise SettingsError(
            "this node's settings have no 'worker'; start the SuperNode with "
            "--node-config 'worker=\"PATH OF THE WORKER'S SOCKET\"', or by `fedcompass deploy site`"
        )
    return worker
