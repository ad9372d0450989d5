"""How long does an agent wait before it calls a router again?

Each failure in a row doubles the wait up to half a minute, and chance spreads it over its upper half, so that agents
cut off together do not return together. Counting failures, drawing the chance and sleeping are left to the caller; the
count goes back to zero once a registration succeeds.
"""

from typing import Final

FIRST_DELAY_S: Final = 1.0
DELAY_MAX_S: Final = 30.0


def reconnect_delay_s(failures: int, *, chance: float) -> float:
    """Seconds to wait after `failures` earlier failures in a row, for a `chance` drawn from [0, 1).

    The first wait is between half a second and one second, the longest between 15 and 30 seconds.

    Source: several-routers.md S-101; decisions.md 25.
    """
    # Past five doublings the bound holds anyway, and an unbounded power would overflow after a day of failures.
    doublings = min(max(failures, 0), 5)
    return min(DELAY_MAX_S, FIRST_DELAY_S * 2.0**doublings) * (0.5 + 0.5 * chance)
