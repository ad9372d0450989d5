"""What did the original do where the gates come from?

The bounds of the gates were set from one run, the reference run, on a machine of 2 CPUs: another engine and another
load generator, both programs of the same two CPUs, and two interleaved rounds of which the better one was kept. These
are its figures for the engine itself and for the original. The original is the same program there and here, so what it
takes on another machine tells how that machine compares.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Reference:
    """One case of the reference run: rates of direct and the original, and what the original added and took.

    `errors` says that the original failed some of the requests there, so that its times are no measure.
    """

    direct_per_s: float
    per_s: float
    added_p50_us: float
    cpu_router_us: float
    cpu_agents_us: float
    errors: bool = False

    def direct_in_originals(self) -> float:
        """How many times the original's rate the direct way gave."""
        return self.direct_per_s / self.per_s


REFERENCE: Final = {
    "unary-1": Reference(15_707, 806, 1_111, 646.9, 691.2),
    "unary-16": Reference(44_624, 2_050, 7_134, 334.6, 371.1),
    "unary-64": Reference(41_734, 2_515, 23_200, 299.4, 327.8),
    "unary-16-256k": Reference(4_028, 209, 74_000, 3_890.8, 4_027.3),
    # With 8 agents; one carried 50 streams as well, and refused most of 200.
    "streams-50": Reference(2_500, 2_499, 338, 72.4, 59.1),
    "streams-200": Reference(9_999, 9_947, 410, 41.4, 53.8),
    "streams-500": Reference(24_993, 12_823, 6_375, 71.7, 47.3, errors=True),
    "saturation-16": Reference(779_494, 223_574, 11_300, 2.6, 1.4),
}
