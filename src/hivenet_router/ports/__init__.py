"""What do the rooms and the agent need from the world outside, and in which words?

Protocols, and the plain values that cross them. Each has an adapter that does the I/O and an honest fake in the tests;
`cli/` decides which is used.
"""

from hivenet_router.ports.exchange import (
    AnswerWith,
    Arrived,
    AttemptFailed,
    ClientGone,
    Destination,
    Digest,
    Exchange,
    FailureKind,
    Fields,
    Finished,
    ForwardPlan,
    Head,
    HttpServer,
    Resend,
    Usage,
)
from hivenet_router.ports.plane import (
    BootstrapServer,
    CannotListen,
    DataPlane,
    DoorRules,
    OpenBootstrap,
    PlaneBroken,
    PlaneListener,
    Reply,
    RequestFailed,
)
from hivenet_router.ports.recorder import (
    Clock,
    Recorder,
    RequestEnd,
)
from hivenet_router.ports.told import Told

__all__ = [
    "AnswerWith",
    "Arrived",
    "AttemptFailed",
    "BootstrapServer",
    "CannotListen",
    "ClientGone",
    "Clock",
    "DataPlane",
    "Destination",
    "Digest",
    "DoorRules",
    "Exchange",
    "FailureKind",
    "Fields",
    "Finished",
    "ForwardPlan",
    "Head",
    "HttpServer",
    "OpenBootstrap",
    "PlaneBroken",
    "PlaneListener",
    "Recorder",
    "Reply",
    "RequestEnd",
    "RequestFailed",
    "Resend",
    "Told",
    "Usage",
]
