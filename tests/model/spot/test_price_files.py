"""Price histories from files: every format, holes, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import InputError
from plink.model.spot.price_files import Histories, holes_in, read_spot_histories
from plink.model.spot.prices import Market, PriceTrace
from tests.solvers.spot.histories import evicted_after, histories, history

A, B = Market("us-east-1a", "c4.large"), Market("us-east-1b", "c4.large")


def entry(hour: int, price: object = "0.0311", zone: str = A.zone, **more: object) -> dict[str, object]:
    """One entry as the aws command prints it."""
    return {
        "AvailabilityZone": zone, "InstanceType": "c4.large", "ProductDescription": "Linux/UNIX",
        "SpotPrice": price, "Timestamp": f"2016-06-{11 + hour // 24:02}T{hour % 24:02}:00:00.000Z",
    } | more  # fmt: skip


def page(path: Path, *entries: dict[str, object]) -> Path:
    path.write_text(json.dumps({"SpotPriceHistory": list(entries), "NextToken": ""}))
    return path


def test_pages_newest_first_are_joined_and_repeats_count_once(tmp_path: Path) -> None:
    """The older page comes second; one entry is on both."""
    first = page(tmp_path / "1.json", entry(5, "0.05"), entry(3, "0.03", B.zone), entry(2, "0.02"))
    second = page(tmp_path / "2.json", entry(2, "0.02"), entry(0, "0.01"))
    both = read_spot_histories([first, second])
    trace = both.prices[A]
    assert ((trace.times - trace.times[0]) / 3600).tolist() == [0, 2, 5]
    assert trace.prices.tolist() == [0.01, 0.02, 0.05]
    assert both.prices[B].until == trace.until  # the price stood until the end of the files
    assert both.notes == ("prices that are there twice and count once: 1",)
    joined = tmp_path / "both.json"
    joined.write_text(first.read_text() + "\n" + second.read_text())
    assert read_spot_histories([joined]).prices[A].times.tolist() == trace.times.tolist()


def test_the_later_of_two_at_one_time_counts(tmp_path: Path) -> None:
    """Newest first: the first of them is the later one."""
    result = read_spot_histories([page(tmp_path / "a.json", entry(5), entry(2, "0.09"), entry(2, "0.02"), entry(0))])
    assert result.prices[A].prices.tolist() == [0.0311, 0.09, 0.0311]
    assert "the later line counts" in result.notes[0]


def test_other_formats_say_the_same(tmp_path: Path) -> None:
    listed = read_spot_histories([page(tmp_path / "a.json", entry(5, "0.05"), entry(0, "0.01"))]).prices[A]
    text = "SPOTPRICEHISTORY\tus-east-1a\tc4.large\tLinux/UNIX\t{}\t2016-06-11T0{}:00:00.000Z\n"
    files = {
        "a.txt": text.format("0.05", 5) + text.format("0.01", 0),
        "a.csv": "Timestamp,InstanceType,ProductDescription,AvailabilityZone,SpotPrice\n"
        "2016-06-11 00:00:00+00:00,c4.large,Linux/UNIX,us-east-1a,0.01\n"
        "2016-06-11T05:00:00Z,c4.large,Linux/UNIX,us-east-1a,0.05\n",
        "b.csv": "us-east-1a,c4.large,1465603200,0.01\n\nus-east-1a,c4.large,2016-06-11 05:00,0.05\n",
        "c.json": json.dumps(Histories({A: listed}).document().to_json()),
        "query.txt": "c4.large\t0.05\t2016-06-11T05:00:00.000Z\tus-east-1a\n"
        "c4.large\t0.01\t2016-06-11T00:00:00.000Z\tus-east-1a\n",
        "query.json": '[["us-east-1a", "c4.large", 0.05, "2016-06-11T05:00:00Z"], '
        '["us-east-1a", "c4.large", "0.01", "2016-06-11T00:00:00Z"]]',
        "product.json": '[["0.01", "Linux/UNIX", "2016-06-11T00:00:00Z", "c4.large", "us-east-1a"], '
        '["0.05", "Linux/UNIX", "2016-06-11T05:00:00Z", "c4.large", "us-east-1a"]]',
        "keys.json": '[{"AZ": "us-east-1a", "Type": "c4.large", "Price": "0.01", "Time": "2016-06-11T00:00:00Z"}, '
        '{"AZ": "us-east-1a", "Type": "c4.large", "Price": "0.05", "Time": "2016-06-11T05:00:00Z"}]',
        "d.csv": "Region;Availability Zone;Instance Type;OS;Price per Hour;Effective time\n"
        "us-east-1;us-east-1a;c4.large;Linux/UNIX;0.01;2016-06-11T00:00:00Z\n"
        "us-east-1;us-east-1a;c4.large;Linux/UNIX;0.05;2016-06-11T05:00:00Z\n",
        "e.tsv": "zone\ttype\ttimestamp\tprice\nus-east-1a\tc4.large\t1465603200\t0.01\n"
        "us-east-1a\tc4.large\t1465621200\t0.05\n",
        "pasted.txt": "us-east-1a  c4.large  Linux/UNIX  0.01  2016-06-11T00:00:00Z\n"
        "us-east-1a  c4.large  Linux/UNIX  0.05  2016-06-11T05:00:00Z\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        trace = read_spot_histories([tmp_path / name]).prices[A]
        assert (trace.times.tolist(), trace.prices.tolist()) == (listed.times.tolist(), listed.prices.tolist()), name


def test_products_stay_apart(tmp_path: Path) -> None:
    windows = entry(1, ProductDescription="Windows")
    markets = read_spot_histories([page(tmp_path / "a.json", windows, entry(0))]).prices
    assert {market.product for market in markets} == {"Linux/UNIX", "Windows"}


def test_a_gap_in_all_markets_is_a_hole(tmp_path: Path) -> None:
    """Changes every hour for three days, nothing for 56 h, then again; the other market is back two hours later."""
    hours = [*range(72), *range(128, 200)]
    entries = [entry(h, f"0.0{1 + h % 2}") for h in hours] + [entry(h, "0.5", B.zone) for h in (0, 70, 130, 150)]
    result = read_spot_histories([page(tmp_path / "a.json", *entries)])
    start = result.prices[A].start
    holes = {market: [((a - start) / 3600, (b - start) / 3600) for a, b in trace.holes]
             for market, trace in result.prices.items()}  # fmt: skip
    assert holes == {A: [(71, 128)], B: [(71, 130)]}
    assert "57 h" in result.notes[0]
    again = result.document().to_json()
    (tmp_path / "b.json").write_text(json.dumps(again))
    assert read_spot_histories([tmp_path / "b.json"]).prices[B].holes == result.prices[B].holes


def test_quiet_markets_have_no_holes() -> None:
    assert holes_in(3600.0 * np.array([0, 10, 30, 90, 100.0])) == []
    assert holes_in(3600.0 * np.array([0.0])) == []


@pytest.mark.parametrize(
    "price", ["N/A", "0", "0.0", "-0.1", 0, -1, None, True, "nan", "inf", "", "€0.03", [1], "1e300", "1e309", 1e9]
)
def test_what_is_no_price_is_refused(price: object, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"SpotPriceHistory\[1\]\.SpotPrice: expected a price above 0 and below 1e9"):
        read_spot_histories([page(tmp_path / "a.json", entry(1), entry(0, price))])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "expected JSON, or CSV|no prices"),
        ("{}", "no price history"),
        ("[1]", "expected an object"),
        ('{"SpotPriceHistory": 5}', "no price history"),
        ('{"SpotPriceHistory": []}', "no prices in it"),
        ('{"SpotPriceHistory": [{}]}', "AvailabilityZone: is missing"),
        ('{"SpotPriceHistory": [', "not JSON"),
        ('{"a": NaN}', "not JSON"),
        ("hello\n", "not a price history"),
        ("zone,type,timestamp,price\na,b,yesterday,1\n", "expected a time"),
        ("zone,type,timestamp,price\na,b,2016-01-01\n", "4 columns were expected"),
        ("zone,type,timestamp,price\n,b,2016-01-01,1\n", "zone and type"),
        ("zone,type,timestamp,price,currency\na,b,1,1,USD\na,b,2,1,EUR\n", "prices in EUR, after others in USD"),
        ("SPOTPRICEHISTORY\ta\tb\n", "not a price history"),
        ("zone,timestamp,price\na,1,1\n", "no column of the type"),
        ("Zone\tType\tWhen\tPrice\na\tb\t1\t1\n", "no column of the time.*When"),
        ('[{"Zone": "a", "Type": "b", "Price": "1"}]', r"\[0\].Timestamp: is missing; there are Zone, Type, Price"),
        ('[["a", "b", "2016-01-01"]]', r"\[0\]: expected a zone, a type, a time and a price"),
        ('[["a", "b", "2016-01-01", 1], ["a"]]', r"\[1\]: expected a zone"),
        ('{"schema": "plink.order/1"}', "spot-prices"),
        ('{"metadata": {"gap_seconds": 0}, "data": [1, 0]}', "above 0|> 0"),
        (f'{{"metadata": {{"gap_seconds": 60}}, "data": [1, {1 << 63}]}}', r"data\[1\]"),
        (f'{{"metadata": {{"gap_seconds": {10**400}}}, "data": [1, 0]}}', "gap_seconds"),
        (f'{{"metadata": {{"gap_seconds": 60, "start_s": {10**30}}}, "data": [1, 0]}}', "start_s"),
        (f'{{"SpotPriceHistory": [{json.dumps(entry(0, 10**400))}]}}', "expected a price"),
        (f'{{"SpotPriceHistory": [{json.dumps(entry(0, Timestamp=10**400))}]}}', "expected a time"),
        (f'{{"SpotPriceHistory": [{json.dumps(entry(0, Timestamp=-(10**400)))}]}}', "expected a time"),
        (f"zone,type,timestamp,price\na,b,1,{10**400}\n", "expected a price"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(content: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "us-east-1a_v100.txt").write_text(content)
    with pytest.raises(InputError, match=reason) as error:
        read_spot_histories([tmp_path / "us-east-1a_v100.txt"])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"times_s": [1.0, 0.5]}, r"times_s\[1\]: times must increase"),
        ({"prices": [1.0]}, "2 times_s and 1 prices"),
        ({"until_s": 1.0}, "before the last"),
        ({"holes_s": [[0.5, 1.5]]}, "holes"),
        ({"holes_s": [[-1.0, 0.0]]}, "0"),
        ({"prices": [1.0, 0.0]}, r"prices\[1\]"),
    ],
)
def test_documents_that_contradict_themselves(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    market = {"zone": "a", "type": "t", "product": "p", "times_s": [0.0, 2.0], "prices": [1.0, 2.0], "until_s": 3.0}
    document = {"schema": "plink.spot-prices/1", "currency": "USD", "markets": [market | change]}
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=reason):
        read_spot_histories([tmp_path / "a.json"])


def test_availability_histories(tmp_path: Path) -> None:
    """The public form, whose file names the market, and plink's own."""
    public = tmp_path / "us-east-2b_v100_1.json"
    public.write_text('{"metadata": {"gap_seconds": 300}, "data": [0, 16, 16, 6]}')
    own = {"schema": "plink.spot-availability/1", "gap_seconds": 60, "start_s": 5,
           "zones": [{"zone": "a", "type": "t", "counts": [1, 0]}]}  # fmt: skip
    (tmp_path / "own.json").write_text(json.dumps(own))
    result = read_spot_histories([public, tmp_path / "own.json"]).availability
    trace = result[Market("us-east-2b", "v100_1")]
    assert (trace.gap_s, trace.counts.tolist()) == (300, [0, 16, 16, 6])
    assert result[Market("a", "t")].until == 125
    nameless = tmp_path / "trace.json"
    nameless.write_text(public.read_text())
    with pytest.raises(InputError, match="the name of the file says which market"):
        read_spot_histories([nameless])


@given(histories(), st.floats(0, 1), st.floats(0, 1))
def test_a_part_of_a_history_has_its_prices(trace: PriceTrace, first: float, last: float) -> None:
    start, end = sorted((first * trace.until, last * trace.until))
    part = trace.between(start, end)
    if part is None:
        assert end <= start
        return
    assert (part.start, part.until) == (start, end)
    for time in np.linspace(start, end, 9)[:-1]:
        assert part.price_at(time) == trace.price_at(time)
        assert evicted_after(part, time, 0.0) in (evicted_after(trace, time, 0.0), float("inf"))


def test_parts_keep_their_holes() -> None:
    trace = history((0, 1), (20, 5), (24, 1), until=30, holes=((10, 20),))
    assert trace.stretches == ((0, 36_000), (72_000, 108_000))
    for start, end, holes, span in (
        (0, 15, (), (0, 10)),
        (12, 25, (), (20, 25)),
        (5, 25, ((10, 20),), (5, 25)),
        (11, 19, None, None),
    ):
        part = trace.between(3600.0 * start, 3600.0 * end)
        if span is None:
            assert part is None
        else:
            assert part is not None
            assert (part.start / 3600, part.until / 3600) == span
            assert part.holes == tuple((3600 * a, 3600 * b) for a, b in holes or ())


def test_means_and_quantiles_are_over_time() -> None:
    trace = history((0, 1), (3, 9), (4, 1), until=8, holes=())
    assert (trace.mean(), trace.quantile(0.5), trace.quantile(0.9)) == (2, 1, 9)
