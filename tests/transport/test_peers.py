"""Which other hosts a host is told of."""

import pytest

from plink.transport.fleet import sample_peers


@pytest.mark.parametrize("n", [2, 9])
def test_few_hosts_get_all_others_as_peers(n: int) -> None:
    hosts = [f"10.0.0.{i}" for i in range(n)]
    assert sample_peers(hosts) == {own: [other for other in hosts if other != own] for own in hosts}


@pytest.mark.parametrize("n", [10, 17, 1000])
def test_many_hosts_get_a_few_peers(n: int) -> None:
    """From all over the list: what is sent grows as the hosts do, not as their pairs."""
    hosts = [f"host-{i:04}" for i in range(n)]
    messages = sample_peers(hosts)
    assert list(messages) == hosts
    for own, peers in messages.items():
        assert 4 <= len(peers) <= 8
        assert len(set(peers)) == len(peers)
        assert own not in peers
    assert messages[hosts[-1]][0] == hosts[0]
    assert max(messages[hosts[0]]) >= hosts[n // 2]


def test_hosts_at_one_address_get_other_peers() -> None:
    assert sample_peers(["a", "a", "b"]) == {"a": ["b"], "b": ["a"]}
    assert sample_peers(["a", "a"]) == {"a": ["a"]}


def test_a_single_host_has_no_peers() -> None:
    assert sample_peers(["a"]) == {"a": []}
    assert sample_peers([]) == {}
