"""The old address of `OpenAIChat`, for programs that import it from here: it lives in `chat/`."""

from .chat.model import OpenAIChat

__all__ = ["OpenAIChat"]
