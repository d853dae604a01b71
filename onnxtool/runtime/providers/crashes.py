"""A provider that crashes: what the watch is told of its calls, and what people are told of its end."""

from __future__ import annotations

from onnxtool.errors import UnsupportedError
from onnxtool.runtime.providers.known import CRASH_SETTINGS
from onnxtool.runtime.providers.spec import short_name
from onnxtool.runtime.worker.watchdog import Crash, ProviderCall

REGISTERING = "loading an execution provider's library"


def provider_call(what: str, provider: str) -> ProviderCall | None:
    """What the watch is told of a native call; None where the CPU's provider alone is at work.

    Args:
        what: the call, in words that fit "while ...".
        provider: the first of the session, short or in full.
    """
    name = short_name(provider)
    return None if name == "cpu" else ProviderCall(name, what, CRASH_SETTINGS.get(name))


def provider_crashes(crash: Crash) -> UnsupportedError:
    """That a provider crashes, where the CPU's does not or no model was at hand yet."""
    call = crash.provider
    assert call is not None
    tried = f", with {'='.join(call.setting)} too" if call.setting is not None and crash.signal == "SIGILL" else ""
    cleared = "" if call.what == REGISTERING else " The CPU provider does not: the file is not at fault."
    return UnsupportedError(
        f"{call.provider} crashes on this processor ({crash.signal}) while {call.what}{tried}.{cleared} Use another "
        f"provider, or another version of {call.provider}."
    )
