"""Text survives YAML as Kubernetes reads it, and its own expansion of variables."""

import json
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from runners.kubernetes.objects import as_json, as_yaml, escaped
from tests.runners.kubernetes.kubelet import expanded

# What a container may be given: no zero byte, no lone surrogate.
TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"))
DOLLARS = st.text("$()AB ")
VARIABLES = {"A": "a-value", "B": "$(A)", "": "empty"}


@given(st.one_of(TEXT, DOLLARS))
def test_what_is_escaped_is_expanded_to_itself(text: str) -> None:
    assert expanded(escaped(text), VARIABLES) == text


def test_the_expansion_is_the_one_that_kubernetes_documents() -> None:
    wanted = {"$(A)": "a-value", "$$(A)": "$(A)", "$$$(A)": "$a-value", "$(C)": "$(C)", "$(A": "$(A", "$$": "$",
              "a$": "a$", "$A": "$A", "$$$$": "$$"}  # fmt: skip
    assert {text: expanded(text, VARIABLES) for text in wanted} == wanted


@given(st.lists(TEXT))
def test_yaml_brings_texts_back(texts: list[str]) -> None:
    document: list[dict[str, Any]] = [{"args": texts}]
    assert list(yaml.safe_load_all(as_yaml(document))) == document
    assert json.loads(as_json(document))["items"] == document


def test_what_another_reader_might_take_for_no_text_is_quoted() -> None:
    """Kubernetes reads YAML 1.1 by another library, to which ``1e3`` is a number and ``y`` may be yes."""
    for text in ("1e3", "y", "No", "0o17", "0x1f", "1_000", "1:30", "2026-01-01", ".inf", "~", "null", "=", "<<", "-"):
        assert f'- "{text}"' in as_yaml([{"args": [text]}])


def test_several_objects_are_several_documents() -> None:
    assert as_yaml([{"a": 1}, {"b": 2}]) == "---\na: 1\n---\nb: 2\n"
    shared = {"name": "x"}
    assert "&" not in as_yaml([{"a": shared, "b": shared}])
