"""The published JSON Schemas say what the declarations of documents say."""

import pytest

from plink.model.storage import render_document
from tools.schemas import FOLDER, documents, schema_of


@pytest.mark.parametrize("name", documents())
def test_the_schema_is_that_of_the_declaration(name: str) -> None:
    published = (FOLDER / f"{name}.schema.json").read_text()
    assert published == render_document(schema_of(name, documents()[name])), "run `make reference` and commit it"


def test_every_published_schema_is_of_a_declared_document() -> None:
    assert {path.name.removesuffix(".schema.json") for path in FOLDER.iterdir()} == set(documents())
