from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromSite(_message.Message):
    __slots__ = ("hello", "heartbeat")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    heartbeat: Heartbeat
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "software", "process", "samples", "layout", "leaving")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    software: str
    process: str
    samples: int
    layout: str
    leaving: str
    def __init__(self, protocol: _Optional[int] = ..., software: _Optional[str] = ..., process: _Optional[str] = ..., samples: _Optional[int] = ..., layout: _Optional[str] = ..., leaving: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: str
    def __init__(self, task: _Optional[str] = ...) -> None: ...

class FromServer(_message.Message):
    __slots__ = ("welcome", "task", "withdrawn", "heartbeat", "sum")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    task: Task
    withdrawn: Withdrawn
    heartbeat: Heartbeat
    sum: SumRound
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., task: _Optional[_Union[Task, _Mapping]] = ..., withdrawn: _Optional[_Union[Withdrawn, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., sum: _Optional[_Union[SumRound, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol", "site")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    site: str
    def __init__(self, protocol: _Optional[int] = ..., site: _Optional[str] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("id", "run", "number", "steps", "version", "model", "model_bytes", "form", "refused", "steps_before")
    ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_BYTES_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    STEPS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    id: str
    run: str
    number: int
    steps: int
    version: int
    model: str
    model_bytes: int
    form: str
    refused: str
    steps_before: int
    def __init__(self, id: _Optional[str] = ..., run: _Optional[str] = ..., number: _Optional[int] = ..., steps: _Optional[int] = ..., version: _Optional[int] = ..., model: _Optional[str] = ..., model_bytes: _Optional[int] = ..., form: _Optional[str] = ..., refused: _Optional[str] = ..., steps_before: _Optional[int] = ...) -> None: ...

class Withdrawn(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: str
    def __init__(self, task: _Optional[str] = ...) -> None: ...

class ModelRequest(_message.Message):
    __slots__ = ("task", "offset")
    TASK_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    task: str
    offset: int
    def __init__(self, task: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class AnswerPart(_message.Message):
    __slots__ = ("answer", "data")
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    answer: Answer
    data: bytes
    def __init__(self, answer: _Optional[_Union[Answer, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("task", "form", "payload_bytes", "digest", "steps_done", "seconds", "samples", "loss", "error", "budget_spent", "epsilon", "delta")
    TASK_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    STEPS_DONE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    BUDGET_SPENT_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    task: str
    form: str
    payload_bytes: int
    digest: str
    steps_done: int
    seconds: float
    samples: int
    loss: float
    error: str
    budget_spent: bool
    epsilon: float
    delta: float
    def __init__(self, task: _Optional[str] = ..., form: _Optional[str] = ..., payload_bytes: _Optional[int] = ..., digest: _Optional[str] = ..., steps_done: _Optional[int] = ..., seconds: _Optional[float] = ..., samples: _Optional[int] = ..., loss: _Optional[float] = ..., error: _Optional[str] = ..., budget_spent: _Optional[bool] = ..., epsilon: _Optional[float] = ..., delta: _Optional[float] = ...) -> None: ...

class AnswerReply(_message.Message):
    __slots__ = ("proceed", "receipt")
    PROCEED_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    proceed: Proceed
    receipt: Receipt
    def __init__(self, proceed: _Optional[_Union[Proceed, _Mapping]] = ..., receipt: _Optional[_Union[Receipt, _Mapping]] = ...) -> None: ...

class Proceed(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("task", "accepted", "reason")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    task: str
    accepted: bool
    reason: str
    def __init__(self, task: _Optional[str] = ..., accepted: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class SumRound(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class SumPart(_message.Message):
    __slots__ = ("data", "last")
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    last: bool
    def __init__(self, data: _Optional[bytes] = ..., last: _Optional[bool] = ...) -> None: ...
