"""How much memory is left, as Linux says it."""

from pathlib import Path

from agents import memory


def test_the_limit_of_the_control_group_counts_and_else_the_machine(tmp_path: Path) -> None:
    def told(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert memory.free_ratio(tmp_path) is None
    told("proc/meminfo", "MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:  250 kB\nHugePages_Total: 0\n")
    assert memory.free_ratio(tmp_path) == 0.25
    told("proc/self/cgroup", "0::/pod\n")
    told("sys/fs/cgroup/pod/memory.max", "max\n")
    told("sys/fs/cgroup/pod/memory.current", "900\n")
    told("sys/fs/cgroup/pod/memory.stat", "anon 500\ninactive_file 300\n")
    assert memory.free_ratio(tmp_path) == 0.25, "there is no limit"
    told("sys/fs/cgroup/pod/memory.max", "1000\n")
    assert memory.free_ratio(tmp_path) == 0.4
