"""Rules for all tests: a property fails for what is wrong, never because the machine was busy."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("house", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("house"), max_examples=25)  # for `make quick`
settings.load_profile("house")

# A shell that starts the tests in the background lets them ignore Ctrl-C; commands under test must not inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
