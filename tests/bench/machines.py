"""Machines of a kind, on one: networks behind a bridge, and processes with a share of a core."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from lab.broker import Broker, Seat, cluster_id
from lab.jvm import HOST, free_port

#: Of a bridge, and behind it the networks.
NETWORK, ADDRESS = "tubench", "10.213.77"
CPU = Path("/sys/fs/cgroup/cpu") if Path("/sys/fs/cgroup/cpu").is_dir() else Path("/sys/fs/cgroup")
#: Of a quota, us: short, so that a process rests often and not long.
PERIOD = 20_000


def reachable(near: str) -> Broker:
    """Return a broker that networks reach at ``near``, an address of the bridge, which need not be there yet."""
    port = free_port(int(near.rpartition(":")[2]))
    controller = free_port(port, int(near.rpartition(":")[2]))
    listening = f"""
listeners=PLAINTEXT://{HOST}:{port},NET://0.0.0.0:{near.rpartition(":")[2]},CONTROLLER://{HOST}:{controller}
advertised.listeners=PLAINTEXT://{HOST}:{port},NET://{near}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,NET:PLAINTEXT,CONTROLLER:PLAINTEXT
"""
    return Broker(port=port, properties=listening, seat=Seat(cluster_id(), 1, (controller,)))


@contextmanager
def networks(count: int) -> Iterator[list[tuple[str, ...]]]:
    """Make networks behind a bridge; yield what puts a command into each. OSError or CalledProcessError: not here."""
    with ExitStack() as stack:

        def ip(*words: str, undo: Sequence[str] = ()) -> None:
            subprocess.run(["/usr/bin/env", "ip", *words], check=True, capture_output=True)
            if undo:
                stack.callback(subprocess.run, ["/usr/bin/env", "ip", *undo], check=False, capture_output=True)

        ip("link", "add", NETWORK, "type", "bridge", undo=("link", "del", NETWORK))
        ip("addr", "add", f"{ADDRESS}.1/24", "dev", NETWORK)
        ip("link", "set", NETWORK, "up")
        names = [f"{NETWORK}{n}" for n in range(count)]
        for n, name in enumerate(names):
            ip("netns", "add", name, undo=("netns", "del", name))
            ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name, undo=("link", "del", name))
            ip("link", "set", name, "master", NETWORK, "up")
            ip("-n", name, "addr", "add", f"{ADDRESS}.{n + 2}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield [("ip", "netns", "exec", name) for name in names]


@contextmanager
def quotas(pids: Sequence[int], share: float) -> Iterator[None]:
    """Give each process, with its children, a share of a core. OSError: not here."""
    with ExitStack() as stack:
        for pid in pids:
            group = CPU / f"{NETWORK}-{pid}"
            group.mkdir()
            stack.callback(group.rmdir)
            if (group / "cpu.cfs_quota_us").exists():
                (group / "cpu.cfs_period_us").write_text(str(PERIOD))
                (group / "cpu.cfs_quota_us").write_text(f"{share * PERIOD:.0f}")
            else:
                (group / "cpu.max").write_text(f"{share * PERIOD:.0f} {PERIOD}")
            for each in (pid, *_children(pid)):
                (group / "cgroup.procs").write_text(str(each))
                stack.callback(_let_go, each)
        yield


def _let_go(pid: int) -> None:
    with suppress(OSError):  # it has ended
        (CPU / "cgroup.procs").write_text(str(pid))


def _children(pid: int) -> list[int]:
    return [int(each) for task in Path(f"/proc/{pid}/task").glob("*/children") for each in task.read_text().split()]
