"""Networks as tables of other tools: matrices and pairs, their units, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from plink.errors import InputError
from plink.model.network import read_network

NAN = float("nan")
LATENCY_US = [[0, 31500, 40000], [31900, 0, 22000], [40000, 22000, 0]]


def read(folder: Path, text: str, unit: str = "") -> tuple[list[str], list[list[float]]]:
    """Names and round trips of a table."""
    (folder / "table").write_text(text)
    network = read_network(f"{folder / 'table'}{unit}")
    return network.hosts.names, network.latency_us.tolist()


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        (",a,b,c\na,0,31.5,40\nb,31.9,0,22\nc,40,22,0\n", "#ms"),
        ("rtt_ms,a,b,c\na,0,31.5,40\nb,31.9,0,22\nc,40,22,0\n", ""),
        ("Latency [us];c;b;a\na;40000;31500;0\nb;22000;0;31900\nc;0;22000;40000\n", ""),
        ("# in ms\n\ta\tb\tc\na\t\t31.5\t40\nb\t31.9\t\t22\nc\t40\t22\t\n", ""),
        ("a b c\na 0 31.5 40\nb 31.9 0 22\nc 40 22 0\n", "#ms"),
        ("a,b,c\n-,31.5,40\n31.9,-,22\n40,22,-\n", "#ms"),
        ("a 0 31.5 40\nb 31.9 0 22\nc 40 22 0\n", "#ms"),
        (",a,b,c,\na,0,31.5,40,\nb,31.9,0,22,\nc,40,22,0,\n", "#ms"),
        (";a;b;c\na;0;31,5;40\nb;31,9;0;22\nc;40;22;0\n", "#ms"),
        (",a,b,c\na,0.05 ms,31.5 ms,0.04 s\nb,31900us,0,22ms\nc,40ms,22 msec,0\n", ""),
        ("a b 31.5\na c 40\nb a 31.9\nb c 22\nc a 40\nc b 22\n", "#ms"),
        ("x,y,ms\na,b,31.5\na,c,40\nb,a,31.9\nb,c,22\nc,a,40\nc,b,22\n", ""),
        ("src,dst,loss_%,rtt_us\na,b,0,31500\na,c,0,40000\nb,a,0,31900\nb,c,1,22000\nc,a,0,40000\nc,b,0,22000\n", ""),
        ('"to","from","avg","min (ms)"\n"b","a","35","31.5"\n"c","a",50,40\n"a","b",,"31.9"\nc,b,23,22\na,c,40,40\n'
         'b,c,30,22\n', ""),
        ("from\tto\tms\na\tb\t30\na\tb\t31.5\na\tb\t99\na\tc\t40\nb\ta\t31.9\nb\tc\t22\nc\ta\t40\nc\tb\t22\n", ""),
    ],
)  # fmt: skip
def test_tables_of_round_trips(text: str, unit: str, tmp_path: Path) -> None:
    names, latency_us = read(tmp_path, text, unit)
    order = [names.index(name) for name in "abc"]
    assert len(names) == 3
    assert np.allclose(np.array(latency_us)[np.ix_(order, order)], LATENCY_US)


def test_numbers_alone(tmp_path: Path) -> None:
    names, latency_us = read(tmp_path, "0 31.5 40\n31.9 0 22\n40 22 0\n", "#ms")
    assert len(set(names)) == 3
    assert latency_us == LATENCY_US
    names, latency_us = read(tmp_path, ",2,3\n2,,5\n3,5,\n", "#us")
    assert latency_us == [[0, 2, 3], [2, 0, 5], [3, 5, 0]]
    names, latency_us = read(tmp_path, ",1,2\n1,,5\n2,6,\n", "#us")
    assert (names, latency_us) == (["1", "2"], [[0, 5], [6, 0]])
    for corner in ("x", "-", "?"):
        names, _ = read(tmp_path, f"{corner},0,1,2\n0,0,5,6\n1,5,0,7\n2,6,7,0\n", "#us")
        assert names == ["0", "1", "2"]
    for zero in ("0", "0.0 us"):  # in the corner, too
        rows = [[zero, "1", "2"], ["1", zero, "3"], ["2", "3", zero]]
        names, latency_us = read(tmp_path, "\n".join(",".join(row) for row in rows), "#us")
        assert (len(set(names)), latency_us) == (3, [[0, 1, 2], [1, 0, 3], [2, 3, 0]])
    names, latency_us = read(tmp_path, "0 1 5\n0 2 6\n1 2 7\n", "#us")
    assert names == ["0", "1", "2"]
    assert latency_us[0][1:] == [5, 6]


def test_decimal_commas(tmp_path: Path) -> None:
    """Of thousands only where commas separate fields: there "1,000" is refused."""
    for text in (";a;b\na;0;1,000\nb;1,5;0\n", ',a,b\na,0,1\nb,"1,5",0\n'):
        assert read(tmp_path, text, "#us")[1] == [[0, 1], [1.5, 0]]
    assert read(tmp_path, ',a,b\na,0,"0,127"\nb,"0,127",0\n', "#us")[1] == [[0, 0.127], [0.127, 0]]


def test_missing_pairs(tmp_path: Path) -> None:
    names, latency_us = read(tmp_path, "a b 5\nb c 7\na c -1\n", "#us")
    assert names == ["a", "b", "c"]
    assert np.array_equal(latency_us, [[0, 5, NAN], [NAN, 0, 7], [NAN, NAN, 0]], equal_nan=True)


@pytest.mark.parametrize(
    ("title", "gbps"),
    [("Mbit/s", 0.25), ("bandwidth_mbps", 0.25), ("Gbits/sec", 250), ("MB/s", 2), ("GiB/s", 250 * 8 * 1.073741824)],
)
def test_rates(title: str, gbps: float, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"from,to,rtt_ms,{title}\na,b,0.5,250\nb,a,0.5,250\n")
    network = read_network(tmp_path / "t.csv")
    assert network.latency_us.tolist() == [[0, 500], [500, 0]]
    assert network.bandwidth_gbps is not None
    assert network.bandwidth_gbps[0][1] == pytest.approx(gbps)


@pytest.mark.parametrize(
    ("text", "unit", "line", "reason"),
    [
        (",a,b\na,0,5\nb,5,0\n", "", ":2", "in which unit"),
        (",a,b\na,0,5\nb,5,0\n", "#parsec", "", "'parsec' is not a unit"),
        (",a,b\na,0,five\nb,5,0\n", "#ms", ":2", "'five' is not a number"),
        (",a,b\na,0,1e300\nb,5,0\n", "#ms", ":2", "1e300 cannot be a measurement"),
        (",a,b\na,0,5 parsec\nb,5,0\n", "", ":2", "in which unit"),
        ("from,to,ms\na,b,1\na\n", "", ":3", "fields"),
        (",a,$(id)\na,0,5\n$(id),5,0\n", "#ms", ":2", "cannot be a host name"),
        ("a b\n1 2 3\n4 5 6\n7 8 9\n", "#ms", "", "the smallest network is"),
        ("hello world\nand all\n", "", "", "the smallest network is"),
        ("node-1 slots=8\n", "", "", "the smallest network is"),
        ("[[0, 1], [1, 0]]", "", "", "the smallest network is"),
        ('{"hosts": ["a"]}', "", "", "the smallest network is"),
        ("ms,a,b\na,0,-\nb,,0\n", "", "", "no value"),
        ("ms,a,b,b\na,0,1,2\nb,1,0,2\nb,2,2,0\n", "", ":1", "host 'b' is listed twice"),
        ("a,b,b\n-,1,2\n1,-,2\n2,2,-\n", "#ms", ":1", "host 'b' is listed twice"),
        ("a 0 1 2\nb 1 0 2\na 2 2 0\n", "#ms", ":3", "host 'a' is listed twice"),
        ('ms,a,b\na,0,"1,000"\nb,1,0\n', "", ":2", "may be 1000 or 1.000"),
        ("from,to,ms\na,b,1\nb,a,-5\n", "", ":3", "-5 is negative"),
    ],
)
def test_what_is_no_network(text: str, unit: str, line: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text, unit)
    assert caught.value.location.partition("#")[0] == f"{tmp_path / 'table'}{line}"
    assert reason in caught.value.reason
    assert "\n" not in str(caught.value)
