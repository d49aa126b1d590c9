"""ssh_config(5) file for launchers that start ``ssh`` themselves: SSH as plink uses it."""

from plink.model.hosts import Hosts
from runners.ssh.connector import SshConnector


def ssh_config(hosts: Hosts, connector: SshConnector) -> str:
    """Return the settings of each host, under the address that the launcher uses.

    Host keys are checked as plink checks them, and ssh asks nothing. Other settings come from the user's own file.
    """
    lines: list[str] = []
    for host in hosts:
        settings = connector.settings(host)
        lines += [f"Host {host.address}", f"  HostName {settings.hostname}", f"  Port {settings.port}"]
        lines += [f"  User {settings.user}"]
        lines += [f"  IdentityFile {_quoted(key)}" for key in settings.keys]
        lines += ["  IdentitiesOnly yes"] if settings.identities_only else []
        if settings.known_hosts:
            lines.append(f"  UserKnownHostsFile {' '.join(_quoted(str(path)) for path in settings.known_hosts)}")
        if settings.host_key_alias is not None:
            lines.append(f"  HostKeyAlias {settings.host_key_alias}")
        if settings.proxy_jump:
            lines.append(f"  ProxyJump {','.join(settings.proxy_jump)}")
        elif settings.proxy_command is not None:
            lines.append(f"  ProxyCommand {settings.proxy_command.replace('%', '%%')}")
    lines += [
        "Host *",
        f"  StrictHostKeyChecking {'accept-new' if connector.accept_new_host_keys else 'yes'}",
        "  BatchMode yes",
        "  ConnectTimeout 10",
    ]
    if connector.identity is None:
        lines += ["  Include ~/.ssh/config"]  # for jump hosts and options of proxies
    return "\n".join(lines) + "\n"


def _quoted(path: str) -> str:
    return '"' + path.replace("%", "%%") + '"'
