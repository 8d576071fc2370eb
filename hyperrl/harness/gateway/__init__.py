"""The gateway: policies over HTTP in three wire formats, recorded token by token.

A program that speaks chat.completions, Responses or Anthropic Messages is pointed at a session's URL and
asks it as if it were its model vendor. Needs the extra ``harness``, imported when the first session opens.
"""

from hyperrl.harness.gateway.gateway import Gateway
from hyperrl.harness.gateway.sessions import GatewaySession, GatewaySettings
from hyperrl.harness.gateway.shared_address import SharedAddress

__all__ = ["Gateway", "GatewaySession", "GatewaySettings", "SharedAddress"]
