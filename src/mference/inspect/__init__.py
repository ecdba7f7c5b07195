"""Looking into a model: which experts its router chose, and what a cache would have made of it."""

from mference.inspect.routing import Replay, RoutingTrace

__all__ = ["Replay", "RoutingTrace"]
