"""Properties of the probing part are not held against the clock: the machine that tests them may be busy."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
