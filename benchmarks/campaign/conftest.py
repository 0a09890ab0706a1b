"""The campaigns run with the cache, the seeds and the skips of the tests."""

from tests.conftest import *  # noqa: F403 - hooks and fixtures, which pytest looks up here
