"""What a client knows of the time of tablets."""

from __future__ import annotations

__all__ = ["ClientTime"]


class ClientTime:
    """The highest timestamp that was answered; 0 before any."""

    def __init__(self) -> None:
        self.timestamp = 0

    def learn(self, *timestamps: int) -> None:
        """What an answer said."""
        self.timestamp = max(self.timestamp, *timestamps)
