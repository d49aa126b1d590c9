"""Bring a lab up, take it down, enter it."""

import contextlib
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

from plink.errors import PlinkError, UsageError
from plink.model.hosts import Hosts, render_hosts
from plink.model.storage import write_text
from runners.lab import gpu, kernel, links, sshd
from runners.lab.blueprint import NETWORK, PREFIX, Blueprint, LabSettings, draw, is_lab_address
from runners.lab.state import LABS, LabState, names, need_root

_GUARD = LABS / ".guard-route"


def up(settings: LabSettings, on_step: Callable[[str], None] = lambda step: None) -> tuple[Blueprint, bool]:
    """Bring a lab up; one that is up with the same settings is left as it is. Returns it, and whether it is new.

    What a crash left of this lab is taken away first, and a failure on the way up takes all away again.

    :raises UsageError: without root, or when it is up with other settings.
    """
    need_root("plink lab up")
    blueprint, state = draw(settings), LabState(settings.name)
    with state.locked():
        if state.is_up():
            if state.blueprint() != blueprint:
                raise UsageError(
                    f"lab {settings.name!r} is up with other settings: `plink lab down --name {settings.name}` first, "
                    "or give this one another --name"
                )
            return blueprint, False
        _check_private_folders(blueprint, state)
        _remove(state)
        if settings.gpu:
            gpu.check(len(blueprint.places))
        try:
            state.begin()
            _guard()
            if settings.gpu:
                on_step("MPS")
                gpu.start(state)
            on_step("links")
            links.lay(blueprint)
            on_step("keys")
            sshd.write_keys(blueprint, state)
            on_step("sshd")
            with ThreadPoolExecutor(max_workers=4) as pool:
                list(pool.map(lambda place: sshd.start(blueprint, place, state), blueprint.places))
            write_text(state.hosts_file, render_hosts(blueprint.hosts()))
            blueprint.truth().write(state.truth_file)
            state.finish(blueprint)
        except BaseException:
            _remove(state)
            raise
    return blueprint, True


def _check_private_folders(blueprint: Blueprint, state: LabState) -> None:
    """:raises UsageError: for folders that there are not, or without which no host can run."""
    files = (sys.executable, sys.prefix, __file__, "/bin/sh", "/usr/sbin/sshd", "/etc/ssh", "/dev", "/proc")
    needed = [state.folder, *map(Path, files)]
    for path in {path for place in blueprint.places for path in blueprint.private_folders(place.name)}:
        if not os.path.isdir(path):
            raise UsageError(f"--private-folder {path}: there is no such folder on this machine; make it first")
        if hidden := [str(file) for file in needed if file.resolve().is_relative_to(Path(path).resolve())]:
            raise UsageError(f"--private-folder {path}: hosts need what is there ({hidden[0]})")


def down(name: str) -> bool:
    """Take a lab down, whole or half up; True when there was anything to take down."""
    need_root("plink lab down")
    state = LabState(name)
    with state.locked():
        return _remove(state)


def _remove(state: LabState) -> bool:
    namespaces = kernel.namespaces(f"{PREFIX}{state.name}.")
    existed = bool(namespaces) or state.folder.exists()
    state.unmark()
    for namespace in namespaces:
        kernel.kill_all(namespace)
    gpu.stop(state)
    kernel.ip([f"netns del {namespace}" for namespace in namespaces])
    state.remove()
    if not names() and _GUARD.exists():
        with contextlib.suppress(PlinkError):  # somebody else took it away
            kernel.ip([f"route del unreachable {NETWORK}"])
        _GUARD.unlink()
    return existed


def _guard() -> None:
    """The machine's own namespace refuses lab addresses, so that nothing can send them out by its default route.

    :raises PlinkError: when another route leads there, which the refusal would not cover.
    """
    guard = f"unreachable {NETWORK}"
    routes = [line.strip() for line in kernel.query(["ip", "route", "show", "root", str(NETWORK)]).splitlines()]
    for line in routes:
        if not line.startswith(guard):
            raise PlinkError(
                f"this machine routes addresses that labs use ({line}): take that route away first (`ip route del ...`)"
            )
    if not routes:
        _GUARD.touch()  # before the route: a crash in between must not leave a route that nobody takes away
        kernel.ip([f"route add {guard}"])


def enter(hosts: Hosts) -> LabState | None:
    """Enter the controller namespace of the hosts' lab, if they have one; return the lab's state, else None.

    This thread and all that it starts then have the lab's network.

    :raises UsageError: when the lab is not up here, or lab addresses stand in a file that does not name their lab.
    """
    if hosts.lab is None:
        for host in hosts:
            if is_lab_address(host.address):
                raise UsageError(
                    f"{host.name}: {host.address} exists only inside an emulated lab, and this file does not name it; "
                    "use the one that `plink lab hosts` prints"
                )
        return None
    need_root("entering a lab")
    state = LabState(hosts.lab)
    blueprint = state.blueprint()
    lab_addresses = {place.address for place in blueprint.places}
    for host in hosts:
        if host.address not in lab_addresses:
            raise UsageError(
                f"{host.name}: {host.address} is no address of lab {hosts.lab!r}; its own are what "
                f"`plink lab hosts --name {hosts.lab}` prints"
            )
    kernel.enter(blueprint.namespace("ctl"))
    return state


def exec_on(state: LabState, host: str, command: list[str]) -> NoReturn:
    """Become a command on a lab host, with its network, host name and /etc/hosts.

    :raises UsageError: when there is no such host. :raises PlinkError: when it is dead or there is no such command.
    """
    blueprint = state.blueprint()
    if host not in {place.name for place in blueprint.places}:
        raise UsageError(f"lab {state.name!r} has no host {host!r}: `plink lab hosts --name {state.name}`")
    pid = sshd.required_process(blueprint, host, state)
    # Also its root: where all of this is in a chroot, that of the mounts is another.
    namespaces = ("--target", str(pid), "--net", "--uts", "--mount", "--root")
    try:
        shared = gpu.environment(host, state) if blueprint.settings.gpu else {}
        os.execvpe("nsenter", ["nsenter", *namespaces, f"--wd={os.getcwd()}", *command], os.environ | shared)
    except OSError as error:
        raise PlinkError(f"cannot run nsenter: {error.strerror}") from None
