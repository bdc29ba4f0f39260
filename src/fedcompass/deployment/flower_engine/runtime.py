"""A connection to Flower's Runtime API: how an app's process gets its messages."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcompass.errors import MissingExtra

if TYPE_CHECKING:
    from flwr.supercore.runtime import RuntimeHttpClient

__all__ = ["acquire", "expect_loopback_certificate", "identify", "runtime_client"]

_LOOPBACK = "127.0.0.1"  # every server's certificate is for this address, too

_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


def runtime_client(
    address: str,
    authority: Path | None = None,
    *,
    secret: bytes | None = None,
    token: str = "",
) -> "RuntimeHttpClient":
    """A client that proves itself by the shared secret, to acquire tasks, or by a task's token.

    Args:
        address: host:port.
        authority: the CA certificate; None on a loopback without TLS.
        secret: of those who may acquire tasks.
        token: of one task.
    """
    try:
        from flwr.supercore.interceptors import (
            RuntimeTokenHttpInterceptor,
            RuntimeVersionHttpInterceptor,
            SuperExecAuthHttpInterceptor,
        )
        from flwr.supercore.retry import make_simple_http_retry_invoker
        from flwr.supercore.runtime import RuntimeHttpClient
    except ImportError:
        raise MissingExtra("flwr", "deploy", "a deployment") from None

    proof: Any = (
        RuntimeTokenHttpInterceptor(token)
        if secret is None
        else SuperExecAuthHttpInterceptor(
            master_secret=secret, protected_methods=frozenset({_ACQUIRE})
        )
    )
    client = RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=authority is None,
        root_certificates=None if authority is None else authority.read_bytes(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="fedcompass"), proof],
        retry_invoker=make_simple_http_retry_invoker(),
    )
    expect_loopback_certificate(client)
    return client


def expect_loopback_certificate(client: Any) -> None:
    """Have a client of this machine's own server look for the loopback name in its certificate.

    The server may listen on an address that its certificate does not name: a certificate is for
    the host by which the sites reach it.

    Args:
        client: one of Flower's, that has sent nothing yet.
    """

    def name_server(request: Any) -> None:
        request.extensions["sni_hostname"] = _LOOPBACK

    client._client.event_hooks = {"request": [name_server]}


def acquire(client: "RuntimeHttpClient", kind: str, run: int | None = None) -> str | None:
    """The token of a waiting task of this kind, None if there is none.

    Args:
        client: made with the secret.
        kind: one of Flower's `TaskType`.
        run: only a task of this run counts; others, left by a dead server, are passed over.
    """
    from flwr.proto.runtime_pb2 import AcquireTaskRequest

    answer = client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
    if not answer.HasField("task") or not answer.token:
        return None
    return str(answer.token) if run in (None, answer.task.run_id) else None


def identify(task: Any) -> None:
    """Make the messages of this process come from a task's node and run."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id = task.task_id
    TaskIdentity.run_id = task.run.run_id
    TaskIdentity.node_id = task.context.node_id
