"""What both of OpenAI's dialects read from the environment, and how a key goes to their servers.

Knows nothing about requests or replies.
"""

from __future__ import annotations

import os
from typing import Final

from tool_loop.errors import ConfigurationError

from .endpoint import checked_url, host_of

OPENAI: Final = "https://api.openai.com/v1"


def configured(model: str | None, base_url: str | None, api_key: str | None) -> tuple[str, str, str]:
    """Model, base URL and key, from the arguments or else from OPENAI_MODEL, OPENAI_BASE_URL, OPENAI_API_KEY."""
    model = model or os.environ.get("OPENAI_MODEL", "")
    url = checked_url(base_url or os.environ.get("OPENAI_BASE_URL", "") or OPENAI, "OPENAI_BASE_URL")
    key = os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key
    if not model:
        raise ConfigurationError("no model: set OPENAI_MODEL, or pass model=, for example gpt-5.4")
    if not key.strip() and host_of(url) == "api.openai.com":
        raise ConfigurationError(
            "no key for api.openai.com: set OPENAI_API_KEY, or OPENAI_BASE_URL for another server "
            "(http://127.0.0.1:8080/v1)"
        )
    return model, url, key


def key_headers(host: str, key: str) -> dict[str, str]:
    if not (key := key.strip()):
        return {}
    found = {"authorization": f"Bearer {key}"}
    if host.endswith(".azure.com"):
        found["api-key"] = key  # the older of Azure's two APIs takes no other
    return found
