"""May this agent have a session? The outcome of `Authenticate`, in the original's order and words.

Invariant: nothing is judged before the token is; a request without metadata is refused like one with empty metadata.
Making the session (core/sessions.py) and saying where to connect stay with the caller.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hivenet_router.names.protocol_ids import OLLAMA_DEFAULT_TAG, Engine
from hivenet_router.wire.auth_messages import (
    AgentMetadata,
    AuthOutcome,
    AuthRequest,
    LibP2PInfo,
    RouterConfig,
    RouterEndpoint,
)
from hivenet_router.wire.jwt import AgentClaims, TokenRefused

DEFAULT_CAPABILITY: Final = "llm"

_ACCEPTED: Final = "Authentication successful"


@dataclass(frozen=True, slots=True)
class Welcome:
    """The agent may have a session under this subject; its metadata is complete, capability included."""

    subject: str
    metadata: AgentMetadata


def judge(request: AuthRequest, verdict: AgentClaims | TokenRefused) -> Welcome | AuthOutcome:
    """What `Authenticate` comes to, given what the token check said: a welcome, or the refusal to send.

    Source: wire.md §4.2 (outcomes, in checking order), §14 no. 1.
    """
    if isinstance(verdict, TokenRefused):
        return refusal(f"Authentication failed: {verdict.reason}")
    metadata = request.metadata if request.metadata is not None else AgentMetadata()
    fault = _first_fault(metadata)
    if fault is not None:
        return refusal(f"Invalid metadata: {fault}")
    complete = replace(metadata, model=_announced(metadata), capability=metadata.capability or DEFAULT_CAPABILITY)
    return Welcome(verdict.subject, complete)


def _announced(metadata: AgentMetadata) -> str:
    """The model's name; two agents of Ollama serve one model whether or not its default tag is written out."""
    if metadata.engine != Engine.OLLAMA:
        return metadata.model
    # A name that is nothing but the tag stays: it would be none without it.
    return metadata.model.removesuffix(OLLAMA_DEFAULT_TAG) or metadata.model


def _first_fault(metadata: AgentMetadata) -> str | None:
    if not metadata.model:
        return "model is required"
    if metadata.capacity <= 0:
        return "capacity must be positive"
    required = {
        "version": metadata.version,
        "engine": metadata.engine,
        "region": metadata.region,
        "organization": metadata.organization,
    }
    return next((f"{name} is required" for name, value in required.items() if not value), None)


def refusal(message: str) -> AuthOutcome:
    """The answer that turns an agent away; it tries again later."""
    return AuthOutcome(success=False, message=message)


def acceptance(
    session_token: str,
    *,
    libp2p_info: LibP2PInfo,
    config: RouterConfig,
    routers: Sequence[RouterEndpoint] = (),
    router_id: str = "",
) -> AuthOutcome:
    """The answer that lets an agent in, with all that the original agent needs to go on."""
    return AuthOutcome(
        success=True,
        message=_ACCEPTED,
        session_token=session_token,
        libp2p_info=libp2p_info,
        config=config,
        routers=tuple(routers),
        router_id=router_id,
    )
