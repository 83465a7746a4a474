"""The old address of `OpenAIResponses`, for programs that import it from here: it lives in `responses/`."""

from .responses.model import OpenAIResponses

__all__ = ["OpenAIResponses"]
