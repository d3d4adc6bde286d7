"""How Hypothesis runs here: no deadlines, since machines differ, and the same examples each time in CI."""

import os

from hypothesis import settings

settings.register_profile("sluice", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")))
settings.load_profile("sluice")
