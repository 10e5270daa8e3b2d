"""Cases that once went wrong, shrunk; each is run again by every test run."""

from .rounds import Case

FOUND: tuple[Case, ...] = ()
