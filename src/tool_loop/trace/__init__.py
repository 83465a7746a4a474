"""A run as OpenTelemetry spans and metrics: `agent = traced(agent)`, and nothing else changes."""

from __future__ import annotations

from .wrappers import traced

__all__ = ["traced"]
