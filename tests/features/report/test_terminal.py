"""What the terminal gets: the same picture in colour, in shades and in plain ASCII, never wider than it is."""

import numpy as np
import pytest

from plink.features.report.colours import scale_of
from plink.features.report.show import Ink, heat_rows, reduce_matrix, terminal_lines
from tests.features.report.subjects import facts, plain, troubled

MEASURED = np.array([[0.0, 10, 100, 100], [10, 0, 100, np.nan], [100, 100, 0, 10], [100, 100, 10, 0]])


def lines(values: np.ndarray, ink: Ink) -> list[str]:
    """The text of a heat map."""
    positive = values[np.isfinite(values) & (values > 0)]
    return [
        line.plain for line in heat_rows(reduce_matrix(values, np.arange(len(values)), 100), scale_of(positive), ink)
    ]


def test_shades_are_two_columns_a_host() -> None:
    assert lines(MEASURED, Ink(80, False, False)) == ["  ··████", "··  ██??", "████  ··", "████··  "]


def test_ascii_where_nothing_else_can_be_shown() -> None:
    assert lines(MEASURED, Ink(80, False, True)) == ["  ..####", "..  ##??", "####  ..", "####..  "]


def test_many_hosts_are_put_together_by_their_mean() -> None:
    values = np.kron(np.array([[10.0, 90.0], [90.0, 10.0]]), np.ones((3, 3)))
    np.fill_diagonal(values, 0.0)
    assert reduce_matrix(values, np.arange(6), 2) == pytest.approx(np.array([[10.0, 90.0], [90.0, 10.0]]))
    values[:3, 3:] = np.nan
    assert np.isnan(reduce_matrix(values, np.arange(6), 2)[0, 1])


def test_host_alone_in_a_row_is_blank_on_the_diagonal() -> None:
    """Rows are of one and two hosts: what a host is to itself was not to be measured."""
    values = np.full((5, 5), 10.0)
    np.fill_diagonal(values, 0.0)
    rows = heat_rows(reduce_matrix(values, np.arange(5), 4), scale_of(np.array([10.0, 20.0])), Ink(80, False, False))
    assert not any("?" in row.plain for row in rows)
    assert sum(row.plain[2 * k] == " " for k, row in enumerate(rows)) == 3


@pytest.mark.parametrize("width", [40, 120])
@pytest.mark.parametrize("colour", [False, True])
def test_no_line_is_wider_than_the_terminal(width: int, colour: bool) -> None:
    for subject in (facts(64, 8), troubled(), plain(2), plain(3), facts(300, 10)):
        lines_ = terminal_lines(subject, Ink(width, colour, False))
        assert max(line.cell_len for line in lines_) <= width
        assert lines_[0].plain == f"The network between {len(subject.names)} hosts"


def test_ascii_all_through() -> None:
    text = "\n".join(line.plain for line in terminal_lines(troubled(), Ink(80, False, True)))
    assert text.isascii()


def test_a_narrow_terminal_has_whole_figures() -> None:
    """What does not fit is left out, and no number is cut."""
    for width, heads in (
        (80, "tier pairs measured median 80% within"),
        (44, "tier median 80% within"),
        (28, "tier median"),
    ):
        plain_lines = [line.plain for line in terminal_lines(facts(64, 8), Ink(width, False, False))]
        start = next(k for k, line in enumerate(plain_lines) if line.startswith("tier"))
        assert plain_lines[start].split() == heads.split()
        assert plain_lines[start + 2].endswith("us")


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_rows_of_hosts_are_named(width: int, colour: bool) -> None:
    """In both heat maps, each in its order."""
    data = facts(16, 4)
    text = [line.plain for line in terminal_lines(data, Ink(width, colour, False))]
    begin = next(k for k, line in enumerate(text) if line.startswith("Round trips, hosts as given"))
    number = [name.rpartition("-")[2] for name in data.names]
    shown = [line.split()[0][-2:] for line in text[begin + 1 : begin + (9 if colour else 17)]]
    assert shown == [name[-2:] for name in number[:: 2 if colour else 1]]
