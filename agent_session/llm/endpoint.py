"""Where a provider is and which key it gets: given, else the environment, else what is known of it.

`<PROVIDER>_BASE_URL` and `<PROVIDER>_API_KEY` are read for each request, so that a program may set them late.
"""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import urlsplit

_KNOWN_BASE_URLS: Final = {"anthropic": "https://api.anthropic.com/v1", "openai": "https://api.openai.com/v1"}
_OPENAI_HOSTS: Final = ("openai.com", "openai.azure.com")


def base_url_for(provider: str) -> str | None:
    """The provider's address; None where neither the environment nor this library knows one."""
    return os.environ.get(base_url_variable(provider)) or _KNOWN_BASE_URLS.get(provider)


def api_key_for(provider: str) -> str | None:
    """The provider's key in the environment."""
    return os.environ.get(api_key_variable(provider)) or None


def base_url_variable(provider: str) -> str:
    return f"{_variable_prefix(provider)}_BASE_URL"


def api_key_variable(provider: str) -> str:
    return f"{_variable_prefix(provider)}_API_KEY"


def is_known_host(provider: str, base_url: str) -> bool:
    """Whether this is the provider's own service, which always wants a key."""
    return base_url.rstrip("/") == _KNOWN_BASE_URLS.get(provider)


def is_openai_host(base_url: str) -> bool:
    """Whether OpenAI itself answers there: it has newer names for some parameters than those who speak like it."""
    host = urlsplit(base_url).hostname or ""
    return any(host == known or host.endswith(f".{known}") for known in _OPENAI_HOSTS)


def _variable_prefix(provider: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", provider).upper()
