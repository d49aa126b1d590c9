"""Two ends that measure each other: what they count, which answers are none, a clock out of step."""

import socket

import pytest

import probes.agent.echo
from probes.agent.echo import Echo
from probes.stamp import SIZE, Key
from tests.probes.echo_peers import ELSEWHERE, GREETINGS, HERE, THERE, HandDriven, Question, Running, probe, task, udp

KEY = Key(b"the key of this run")
Answers = list[tuple[socket.socket, bytes]]


def measured(peer: HandDriven, **changes: object) -> dict[str, object]:
    """What an echo finds out about a hand-driven peer."""
    echo = Echo(KEY, HERE, source_ports=2)
    with Running(echo, beside=[peer]) as running:
        echo.begin(task(peer.address, **changes))
        return running.results(1)[0]


def test_two_ends_measure_each_other_at_the_same_time() -> None:
    a, b = Echo(KEY, HERE, source_ports=3), Echo(KEY, THERE, source_ports=1)
    assert a.stamps
    assert b.stamps
    with Running(a, b) as running:
        a.begin(task((THERE, b.port), task=1, ssid_out=5, ssid_in=6, count=500))
        b.begin(task((HERE, a.port), task=2, ssid_out=6, ssid_in=5, count=300))
        results = running.results(2)
    for result, number, count in zip(results, (1, 2), (500, 300), strict=True):
        assert result["task"] == number
        assert (result["sent"], result["received"], result["reflected"]) == (count, count, count)
        assert (result["clock"], result["hops"], result["clock_steps"]) == ("kernel", 0, 0)
        assert all(value > 0 for value in result["percentiles_us"])
        assert result["percentiles_us"] == sorted(result["percentiles_us"])
        assert all(value > 0 for value in result["halves_us"])
        assert result["jitter_us"] >= 0


def test_result_is_reported_once_and_the_reflector_continues() -> None:
    """One end may be through before the other."""
    a, b = Echo(KEY, HERE, source_ports=1), Echo(KEY, THERE, source_ports=1)
    with Running(a, b) as running:
        a.begin(task((THERE, b.port), task=1, ssid_out=5, ssid_in=6, count=20))
        b.begin(task((HERE, a.port), task=2, ssid_out=6, ssid_in=5, count=2000))
        short, long = running.results(2)
        assert (short["received"], long["received"]) == (20, 2000)
        assert a.poll_result() is None
        assert a.poll_timeout_s() is None


def test_a_new_task_drops_the_one_before() -> None:
    a, b = Echo(KEY, HERE, source_ports=1), Echo(KEY, THERE, source_ports=1)
    with Running(a, b) as running:
        a.begin(task((ELSEWHERE, 9), task=1))  # nobody is there
        running.turn()
        a.begin(task((THERE, b.port), task=2, ssid_out=5, ssid_in=6))
        b.begin(task((HERE, a.port), task=3, ssid_out=6, ssid_in=5))
        assert [(r["task"], r["received"]) for r in running.results(2)] == [(2, 40), (3, 40)]


def test_probes_end_once_the_percentile_is_precise() -> None:
    sent = {}
    for precision in (None, 0.0, 10.0):
        a, b = Echo(KEY, HERE, source_ports=1), Echo(KEY, THERE, source_ports=1)
        with Running(a, b) as running:
            early = {"count": 2000, "min_count": 200, "precision": precision, "window": 16}
            a.begin(task((THERE, b.port), task=1, ssid_out=5, ssid_in=6, **early))
            b.begin(task((HERE, a.port), task=2, ssid_out=6, ssid_in=5, **early))
            results = running.results(2)
        assert all(result["received"] == result["sent"] == result["reflected"] for result in results)
        sent[precision] = [result["sent"] for result in results]
    assert sent[None] == sent[0.0] == [2000, 2000]
    assert all(200 <= number < 600 for number in sent[10.0])


def test_every_probe_is_a_full_packet_from_each_of_the_source_ports() -> None:
    """Each source port is an ECMP path of its own; the first greets, then they take turns by windows."""
    peer = HandDriven(KEY, lambda question: [peer.answer(question)])
    echo = Echo(KEY, HERE, source_ports=4)
    with Running(echo, beside=[peer]) as running:
        echo.begin(task(peer.address, count=64, window=8))
        result = running.results(1)[0]
    assert result["received"] == 64
    assert result["hops"] == 255 - 250
    counted = [peer.sources[-64:].count(source) for source in set(peer.sources)]
    assert counted == [16] * 4
    assert {question[3] for question in peer.probes} == {11}
    greetings = len(peer.probes) - 64
    numbers = [*range(GREETINGS, GREETINGS + greetings), *range(64)]
    assert [question[0] for question in peer.probes] == numbers


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer need not have heard of the measurement later than this end."""
    monkeypatch.setattr(probes.agent.echo, "_HELLO_S", 0.2)


@pytest.mark.usefixtures("impatient")
def test_nobody_there_is_no_result_and_no_error() -> None:
    with udp(THERE) as silent:
        echo = Echo(KEY, HERE, source_ports=1)
        with Running(echo) as running:
            echo.begin(task((THERE, silent.getsockname()[1]), timeout_s=0.1))
            result = running.results(1)[0]
    assert (result["sent"], result["received"], result["reflected"]) == (0, 0, 0)
    assert (result["percentiles_us"], result["hops"]) == ([None] * 5, None)


@pytest.mark.usefixtures("impatient")
def test_a_closed_port_is_like_nobody_there() -> None:
    """ "Port unreachable" by ICMP comes back as errors of the socket."""
    with udp(THERE) as sock:
        port = sock.getsockname()[1]
    echo = Echo(KEY, HERE, source_ports=1)
    with Running(echo) as running:
        echo.begin(task((THERE, port), timeout_s=0.1))
        assert running.results(1)[0]["received"] == 0


def test_a_host_that_waits_for_nothing_but_the_end_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the greetings are over: a host must not spin for the whole of a long --timeout."""
    monkeypatch.setattr(probes.agent.echo, "_HELLO_S", 0.0)
    echo = Echo(KEY, HERE, source_ports=1)
    with Running(echo):
        echo.begin(task((THERE, 9), timeout_s=3600.0))
        assert echo.poll_result() is None
        wait_s = echo.poll_timeout_s()
        assert wait_s is not None
        assert wait_s > 0


def test_an_answer_that_is_none_does_not_count() -> None:
    """Every probe gets a wrong answer, of each kind in turn; half of each kind's a right one after it."""
    elsewhere, client = udp(ELSEWHERE), HandDriven(Key(b"another run"), lambda question: [])

    def wrong(question: Question) -> tuple[socket.socket, bytes]:
        right = peer.answer(question)[1]
        if question[0] < GREETINGS:
            peer.answers -= 1
        kinds = [
            lambda: (elsewhere, right),
            lambda: peer.answer(question, ssid=question[3] + 1),
            lambda: (peer.sock, client.answer(question)[1]),
            lambda: peer.answer((question[0] + 100_000, *question[1:])),
            lambda: (peer.sock, right[:-1]),
            lambda: (peer.sock, right + b"\0"),
            lambda: (peer.sock, right[:96] + bytes(16)),  # not signed
            lambda: (peer.sock, right[:44]),  # without the question
        ]
        return kinds[question[0] % len(kinds)]()

    def rule(question: Question) -> Answers:
        answers = [wrong(question)]
        return answers if question[0] // 8 % 2 else [*answers, peer.answer(question)]

    peer = HandDriven(KEY, rule)
    with elsewhere, client.sock:
        result = measured(peer, timeout_s=2.0, window=48, count=48)
    assert (result["sent"], result["received"]) == (48, 24)


def test_a_step_of_the_clock_is_discarded_and_counted() -> None:
    """A clock set back by a second while a packet was away makes a negative round trip."""

    def rule(question: Question) -> Answers:
        return [peer.answer(question, turnaround_ns=10**9 if question[0] % 4 == 0 else 0)]

    peer = HandDriven(KEY, rule)
    result = measured(peer)
    assert (result["received"], result["clock_steps"]) == (40, 10)
    assert all(value > 0 for value in result["percentiles_us"])  # type: ignore[attr-defined]


def test_packets_are_as_long_both_ways() -> None:
    a = Echo(KEY, HERE, source_ports=1)
    sizes: list[int] = []
    peer = HandDriven(KEY, lambda question: [peer.answer(question)])
    with Running(a, beside=[peer]) as running:
        a.begin(task(peer.address))
        with udp(THERE) as asker:
            asker.sendto(probe(KEY, 0, 22), (HERE, a.port))
            running.results(1)
            sizes.append(len(asker.recv(2000)))
    assert sizes == [SIZE]
