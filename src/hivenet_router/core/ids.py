"""Names for the plain strings and numbers that are easily swapped.

A peer ID and a model name are both text, so a call with the two exchanged would run. With these types it does not
pass the checker. No rule about their contents lives here; `wire/` decides what is acceptable.
"""

from typing import NewType

PeerId = NewType("PeerId", str)
"""An agent's libp2p identity in base58. Text order equals byte order, since all are of one length."""

ModelName = NewType("ModelName", str)
"""A model as an agent serves it, case-sensitive; aliases are resolved before a name gets this type."""

RequestId = NewType("RequestId", str)
"""One client request from the door to the last byte, across all its attempts."""

DeploymentId = NewType("DeploymentId", str)
"""The operator's join key for a group of agents; may be empty."""

ReplicaId = NewType("ReplicaId", str)
"""The operator's join key for one agent in a deployment; may be empty."""

Tokens = NewType("Tokens", int)
"""A count of model tokens, estimated or exact."""
