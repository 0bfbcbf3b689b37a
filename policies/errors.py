"""What goes wrong with policies; starts without torch."""

from __future__ import annotations


class PolicyError(RuntimeError):
    """A policy was asked for something that it cannot do; the message names the policy and the remedy."""


class PolicyAwayError(PolicyError):
    """A policy cannot answer now but may later: its server is away, slow, or another one by now.

    A robot that runs holds still and asks again with what it sees then; in simulated time it is an error.

    Attributes:
        because: why, short enough for a record.
        retry_in_s: seconds before which asking again is pointless.
    """

    def __init__(self, message: str, because: str, retry_in_s: float = 0.0) -> None:
        super().__init__(message)
        self.because, self.retry_in_s = because, retry_in_s
