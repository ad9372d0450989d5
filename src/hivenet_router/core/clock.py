"""Which clock a number was read from.

Two clocks are in use and a mix-up is silent, so each has its own type. This module reads neither: `now` is always
passed in, by keyword and last. Reading a clock is an adapter's work.
"""

from typing import NewType

Monotonic = NewType("Monotonic", float)
"""Seconds on the event loop's clock: for ages, durations and deadlines within one process."""

UnixTime = NewType("UnixTime", float)
"""Seconds since 1970 in UTC: for expiries, quota days and anything another process reads."""
