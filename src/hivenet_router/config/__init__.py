"""What did the operator write? Flags, environment and secret files become settings, or a list of what to put right.

Invariant: text from outside becomes a typed value here, once, or the program does not start. Nothing here opens a
socket, logs or ends the process; `cli` does that with what `parse` hands back.
"""

from hivenet_router.config.addresses import BackendUrl, HostPort, IpNetwork, ListenAddress
from hivenet_router.config.given import Mistake
from hivenet_router.config.option import Option, Program
from hivenet_router.config.options import OPTIONS
from hivenet_router.config.parse import Exit, parse
from hivenet_router.config.secrets_file import RedirectSecret, Secret
from hivenet_router.config.settings import (
    AccessSettings,
    AgentSettings,
    PolicySettings,
    RedirectSettings,
    Resolved,
    RouterSettings,
    StorageSettings,
    SyncSettings,
)

__all__ = [
    "OPTIONS",
    "AccessSettings",
    "AgentSettings",
    "BackendUrl",
    "Exit",
    "HostPort",
    "IpNetwork",
    "ListenAddress",
    "Mistake",
    "Option",
    "PolicySettings",
    "Program",
    "RedirectSecret",
    "RedirectSettings",
    "Resolved",
    "RouterSettings",
    "Secret",
    "StorageSettings",
    "SyncSettings",
    "parse",
]
