"""The Messages API of Anthropic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import AnthropicMessages

__all__ = ["AnthropicMessages"]


def __getattr__(name: str) -> Any:
    # Only when it is asked for: whoever wants the request's encoding alone does not pay for the client.
    if name != "AnthropicMessages":
        raise AttributeError(name)
    from .model import AnthropicMessages

    return AnthropicMessages
