"""How long does an agent take to begin its answer, smoothed?

A sample runs from the moment a request is handed to the agent until its response headers are here; connecting and
queueing are left out. The estimate moves by an eighth in both directions, so that neither one slow nor one quick reply
tips a gate. Taking the sample, and milliseconds at the edges, are left to others.
"""

from typing import Final

from hivenet_router.core.values import value

_GAIN_OF_MEAN: Final = 1 / 8
_GAIN_OF_VARIATION: Final = 1 / 4


@value
class RoundTrip:
    """A smoothed round trip and its mean variation, both in seconds."""

    srtt_s: float
    rttvar_s: float


def after_sample(known: RoundTrip | None, sample_s: float) -> RoundTrip:
    """The estimate in seconds after one more sample; the first one stands alone.

    A clock that steps back gives a negative sample, which counts as zero.

    Source: RFC 6298 §2.2 and §2.3; decisions.md 27.
    """
    if not sample_s > 0.0:
        sample_s = 0.0
    if known is None:
        return RoundTrip(sample_s, sample_s / 2)
    # The variation comes first: it is measured against the mean as it was before this sample.
    deviation_s = abs(known.srtt_s - sample_s)
    return RoundTrip(
        (1 - _GAIN_OF_MEAN) * known.srtt_s + _GAIN_OF_MEAN * sample_s,
        (1 - _GAIN_OF_VARIATION) * known.rttvar_s + _GAIN_OF_VARIATION * deviation_s,
    )
