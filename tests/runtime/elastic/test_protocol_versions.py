"""Protocols of elastic jobs: a changed one has another version."""

from tests.runtime.elastic.protocol_versions import current, forgotten, recorded


def test_changed_protocol_has_another_version() -> None:
    """If this fails: raise VERSION in the file that is named. Then run
    ``python -m tests.runtime.elastic.protocol_versions`` and ``python -m tests.docs.elastic_protocol``."""
    assert not forgotten(current(), recorded()), "raise VERSION there"
    assert current() == recorded(), "record it: python -m tests.runtime.elastic.protocol_versions"
