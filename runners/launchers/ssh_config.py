"""ssh_config(5) file for launchers that start ``ssh`` themselves: SSH as plink uses it."""

from concurrent.futures import ThreadPoolExecutor

from plink.model.hosts import Hosts
from runners.ssh.connector import SshConnector

_FAN_OUT = 16


def ssh_config(hosts: Hosts, connector: SshConnector) -> str:
    """Return the settings of each host, under the address that the launcher uses.

    :raises HostError: when the user's configuration cannot be read; says why.

    Host keys are checked as plink checks them, and ssh asks nothing. Other settings come from the user's own file.
    """
    lines: list[str] = []
    with ThreadPoolExecutor(_FAN_OUT) as pool:
        all_settings = list(pool.map(connector.settings, hosts))
    for host, settings in zip(hosts, all_settings, strict=True):
        lines += [f"Host {host.address}", f"  HostName {settings.hostname}", f"  Port {settings.port}"]
        lines += [f"  User {settings.user}"]
        lines += [f"  IdentityFile {_quoted(key)}" for key in settings.keys]
        lines += [f"  CertificateFile {_quoted(name)}" for name in settings.certificates]
        lines += ["  IdentitiesOnly yes"] if settings.identities_only else []
        if settings.identity_agent is not None:
            lines.append(f"  IdentityAgent {_quoted(settings.identity_agent)}")
        for keyword, paths in (
            ("UserKnownHostsFile", settings.known_hosts),
            ("GlobalKnownHostsFile", settings.global_known_hosts),
            ("RevokedHostKeys", settings.revoked_host_keys),
        ):
            lines += [f"  {keyword} {' '.join(_quoted(str(path)) for path in paths)}"] if paths else []
        if settings.host_key_alias is not None:
            lines.append(f"  HostKeyAlias {settings.host_key_alias}")
        if settings.proxy_jump:
            lines.append(f"  ProxyJump {','.join(settings.proxy_jump)}")
        elif settings.proxy_command is not None:
            lines.append(f"  ProxyCommand {settings.proxy_command.replace('%', '%%')}")
        lines += ["  StrictHostKeyChecking accept-new"] if settings.accept_new_keys else []
        if settings.connect_timeout_s is not None:
            lines.append(f"  ConnectTimeout {settings.connect_timeout_s:.0f}")
    lines += [
        "Host *",
        f"  StrictHostKeyChecking {'accept-new' if connector.accept_new_host_keys else 'yes'}",
        "  BatchMode yes",
        "  ConnectTimeout 10",
    ]
    if connector.identity is None:
        lines += ["  Include ~/.ssh/config", "  Include /etc/ssh/ssh_config"]  # for jump hosts and other options
    return "\n".join(lines) + "\n"


def _quoted(path: str) -> str:
    return '"' + path.replace("%", "%%") + '"'
