"""The agent's call of `Authenticate`: one connection, one call, closed after the answer.

Invariant: not a byte of HTTP/2 leaves before the router has shown a certificate with a pinned key, so a token never
reaches anyone who does not hold the secret. Making the request, trying again and what to do with the outcome are the
agent's.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Final, cast

from grpclib import GRPCError
from grpclib.client import Channel
from grpclib.const import Cardinality
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import StreamTerminatedError
from grpclib.protocol import H2Protocol

from hivenet_router.names.protocol_ids import GRPC_ALPN, GRPC_AUTHENTICATE
from hivenet_router.wire.auth_messages import (
    REQUEST_BYTES_MAX,
    AuthMessageInvalid,
    AuthOutcome,
    AuthRequest,
    decode_outcome,
    encode_request,
)
from hivenet_router.wire.tls_identity import is_pinned

TIMEOUT_S: Final = 30.0
ANSWER_BYTES_MAX: Final = 1 << 20


class BootstrapFailed(Exception):
    """The agent has no session from this router; the text says what is wrong and with which router."""


class RouterUnreachable(BootstrapFailed):
    """Nothing at this address speaks TLS 1.3 to us, or it does not answer in time."""


class WrongSecret(BootstrapFailed):
    """The router's certificate belongs to another secret; nothing was sent to it."""


class AuthenticationRefused(BootstrapFailed):
    """The router answered no; `message` is its reason."""

    def __init__(self, target: str, message: str) -> None:
        super().__init__(f"router {target} refused the agent: {message}")
        self.message = message


class RouterFault(BootstrapFailed):
    """The router holds the secret, but its answer is an error or lacks what an agent needs."""


class RegistrationTooLong(BootstrapFailed):
    """What the agent says about itself is more than a router takes; nothing was sent."""


async def authenticate(
    target: str, pins: Sequence[bytes], request: AuthRequest, *, timeout_s: float = TIMEOUT_S
) -> AuthOutcome:
    """The outcome of a successful `Authenticate` at `target` (`host:port`), with address and configuration in it.

    `pins` are the accepted Ed25519 public keys, one per secret in use. `timeout_s` bounds everything, names included.
    Raises: RouterUnreachable, WrongSecret, AuthenticationRefused, RouterFault, RegistrationTooLong; all of them are
    BootstrapFailed.
    Source: wire.md §4.1, §4.2.
    """
    host, port = split_target(target)
    message = encode_request(request)
    if len(message) > REQUEST_BYTES_MAX:
        raise RegistrationTooLong(
            f"what this agent says about itself takes {len(message)} bytes; a router reads at most {REQUEST_BYTES_MAX}"
        )
    channel = _PinnedChannel(target, host, port, pins)
    try:
        async with asyncio.timeout(timeout_s):
            answer = await _call(channel, message, timeout_s)
    except TimeoutError as error:
        raise RouterUnreachable(f"router {target} did not answer within {timeout_s:g} s") from error
    except BootstrapFailed:
        raise
    except GRPCError as error:
        raise RouterFault(f"router {target} answered with {error.status.name}: {error.message}") from error
    except StreamTerminatedError as error:
        raise RouterUnreachable(f"router {target} closed the connection: {error}") from error
    except ssl.SSLError as error:
        raise RouterUnreachable(
            f"{target} does not speak TLS 1.3 ({error.reason or error}); is it a router's gRPC port?"
        ) from error
    except (OSError, UnicodeError) as error:
        raise RouterUnreachable(f"router {target} cannot be reached: {_reason(error)}") from error
    # grpclib raises what comes to hand when an answer breaks its rules.
    except Exception as error:
        raise RouterFault(f"router {target} does not keep to gRPC: {type(error).__name__}") from error
    finally:
        channel.close()
    return _complete(target, answer)


async def _call(channel: Channel, message: bytes, timeout_s: float) -> bytes | None:
    async with channel.request(GRPC_AUTHENTICATE, Cardinality.UNARY_UNARY, bytes, bytes, timeout=timeout_s) as stream:
        await stream.send_message(message, end=True)
        return await stream.recv_message()


def _complete(target: str, answer: bytes | None) -> AuthOutcome:
    if answer is None:
        raise RouterFault(f"router {target} answered without a message")
    try:
        outcome = decode_outcome(answer)
    except AuthMessageInvalid as error:
        raise RouterFault(f"router {target} answered with something that is {error}") from error
    if not outcome.success:
        raise AuthenticationRefused(target, outcome.message)
    if not outcome.session_token:
        raise RouterFault(f"router {target} accepted the agent without giving it a session token")
    if outcome.libp2p_info is None or not outcome.libp2p_info.addresses:
        raise RouterFault(f"router {target} accepted the agent without saying where to connect")
    if outcome.config is None:
        raise RouterFault(f"router {target} accepted the agent without its configuration")
    return outcome


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, UnicodeError):
        return "its name is no host name"
    if isinstance(error, socket.gaierror):
        return f"its name does not resolve ({error.strerror})"
    return error.strerror or str(error) or type(error).__name__


def split_target(target: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[v6]:port`, or either after gRPC's `dns:///`.

    Raises: RouterUnreachable when it is none of these.
    """
    host, colon, digits = target.removeprefix("dns:///").rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not (colon and host and digits.isascii() and digits.isdigit() and 0 < int(digits) < 65536):
        raise RouterUnreachable(f"{target!r} is not an address of the form host:port")
    return host, int(digits)


def client_context() -> ssl.SSLContext:
    """An ssl context for TLS 1.3 and HTTP/2 that leaves the certificate to the pin."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols([GRPC_ALPN])
    return context


class _Bytes(CodecBase):
    """Messages pass as their protobuf bytes; wire/auth_messages.py gives them their meaning."""

    __content_subtype__ = "proto"

    def encode(self, message: bytes, message_type: type[bytes]) -> bytes:
        return message

    def decode(self, data: bytes, message_type: type[bytes]) -> bytes:
        return data


class _PinnedProtocol(H2Protocol):
    """grpclib's side of the connection, begun only if the peer's key is pinned; else `fault` says why it was cut."""

    def __init__(self, target: str, pins: Sequence[bytes], plain: H2Protocol) -> None:
        super().__init__(plain.handler, plain.config, plain.h2_config)
        self.fault: BootstrapFailed | None = None
        self._target = target
        self._pins = pins
        self._bytes_left = ANSWER_BYTES_MAX
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # TLS transports always are
        tls = cast("ssl.SSLObject", transport.get_extra_info("ssl_object"))  # there is no connection without TLS
        certificate = tls.getpeercert(binary_form=True)
        if certificate is None or not is_pinned(certificate, self._pins):
            self.fault = WrongSecret(
                f"router {self._target} holds another secret than this agent; compare the JWT secret of both"
            )
        elif tls.selected_alpn_protocol() != GRPC_ALPN:
            self.fault = RouterUnreachable(f"router {self._target} does not speak HTTP/2 on this port")
        if self.fault is None:
            super().connection_made(transport)
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._bytes_left -= len(data)
        if self.fault is not None:
            return
        if self._bytes_left < 0:
            self.processor.close(reason=f"it sent more than {ANSWER_BYTES_MAX} bytes")
        else:
            super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self.fault is None:
            super().connection_lost(exc)

    def cut(self) -> None:
        """Closes the socket now; an ordinary close would wait for the router's goodbye, for up to 30 s."""
        if self._transport is not None:
            self._transport.abort()


class _PinnedChannel(Channel):
    """A channel whose connections reach a pinned router or nobody."""

    def __init__(self, target: str, host: str, port: int, pins: Sequence[bytes]) -> None:
        super().__init__(host, port, codec=_Bytes(), ssl=client_context())
        self._target = target
        self._pins = tuple(pins)
        self._made: list[_PinnedProtocol] = []

    def _protocol_factory(self) -> H2Protocol:
        protocol = _PinnedProtocol(self._target, self._pins, super()._protocol_factory())
        self._made.append(protocol)
        return protocol

    async def _create_connection(self) -> H2Protocol:
        protocol = await super()._create_connection()
        if isinstance(protocol, _PinnedProtocol) and protocol.fault is not None:
            raise protocol.fault
        return protocol

    def close(self) -> None:
        super().close()
        for protocol in self._made:
            protocol.cut()
