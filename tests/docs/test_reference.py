"""The reference says what the command line says."""

from tools.reference import PAGE, reference


def test_the_reference_is_that_of_this_command_line() -> None:
    assert PAGE.read_text() == reference(), "docs/reference.md is old: run `make reference` and commit what it writes"


def test_every_command_has_an_example_and_every_option_a_meaning() -> None:
    page = reference()
    for section in page.split("\n## ")[1:]:
        assert "\n    plink " in section or "\n    sudo plink " in section, section.splitlines()[0]
    assert " |  |\n" not in page
