"""The page about the protocol of elastic jobs is that which its types and documentation give."""

from tests.docs.elastic_protocol import PAGE, page


def test_the_page_is_up_to_date() -> None:
    """`python -m tests.docs.elastic_protocol` writes it."""
    assert PAGE.read_text() == page()
