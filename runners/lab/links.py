"""Links of a lab: what a cable is, how it is limited, and which module lays the network of each topology."""

from dataclasses import dataclass

from runners.lab.kernel import ip, sysctl

# Deep enough that TCP fills the link, small enough that a queue is not seconds long; facts from trying it.
_BURST_BYTES, _LIMIT = 32_000, "4mb"
_TCP_BYTES = 65_536  # that TCP hands a veth at once, unless told to hand over less
# Bridged packets are no business of iptables' here, whose look at each costs time.
ROUTER = {"ipv4/ip_forward": "1", "bridge/bridge-nf-call-iptables": "0"}
_QUIET = {"ipv6/conf/all/disable_ipv6": "1", "ipv6/conf/default/disable_ipv6": "1"}
# Before there are devices, which take the default: with several, answers go out another way than packets came in.
_ANY_WAY = {"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0"}
NO_LIMIT = 0


@dataclass(frozen=True)
class Cable:
    """A cable that faults act on: each end is a (namespace, device).

    ``near`` is the end of the host, or of the router further from the core. ``far`` is set down to unplug the cable;
    ``routes`` are the routes that its namespace then loses. ``rate`` in bits per second, or ``NO_LIMIT``; ``delay_us``
    one way.
    """

    near: tuple[str, str]
    far: tuple[str, str]
    rate: int
    delay_us: int = 0
    routes: tuple[str, ...] = ()


def make_namespaces(namespaces: list[str], forwarding: set[str]) -> None:
    """Make namespaces with loopback only; those in ``forwarding`` pass packets on."""
    ip([f"netns add {namespace}" for namespace in namespaces])
    for namespace in namespaces:
        sysctl(namespace, _QUIET | _ANY_WAY | (ROUTER if namespace in forwarding else {}))
        ip(["link set lo up"], namespace)


def shape(device: str, rate: int, delay_us: int = 0) -> list[str]:
    """``tc`` lines that limit what leaves by a device to ``rate`` bit/s, with an optional delay (needs netem)."""
    lines = [f"qdisc replace dev {device} root handle 1: tbf rate {rate}bit burst {_burst(rate)} limit {_LIMIT}"]
    if delay_us:
        lines.append(f"qdisc replace dev {device} parent 1:1 handle 10: netem delay {delay_us}us limit 10000")
    return lines


def _burst(rate: int) -> int:
    return max(_BURST_BYTES, rate // 8 // 1000)


def tcp_segment_bytes(rate: int) -> int:
    """Return what TCP may hand over at once so that a limit lets it through whole, headers of all frames included.

    What is larger than the burst is cut into frames, three times the work for the kernel.
    """
    return min(_TCP_BYTES, _burst(rate) * 15 // 16)
