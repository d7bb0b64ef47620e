"""The memory of this process and of the machine, where the kernel is Linux."""

import re
from pathlib import Path

_STATUS, _MACHINE = Path("/proc/self/status"), Path("/proc/meminfo")
# The limit of a container and what it uses, by cgroups of version 2.
_LIMIT, _USED = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")


def resident() -> int | None:
    """Returns the bytes of this process in memory; None if the system does not say."""
    return _field(_STATUS, "VmRSS")


def available() -> int | None:
    """Returns the bytes that programs can still take; None if the system does not say.

    It is that of the machine, or of the container if that has less.
    """
    found = [_field(_MACHINE, "MemAvailable"), _left_of_container()]
    return min((each for each in found if each is not None), default=None)


def _field(path: Path, name: str) -> int | None:
    """Returns a field of a file of /proc, in bytes."""
    try:
        found = re.search(rf"^{name}:\s*(\d+) kB", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _left_of_container() -> int | None:
    try:
        return max(0, int(_LIMIT.read_text()) - int(_USED.read_text()))
    except (OSError, ValueError):  # There is no container, or its limit is `max`.
        return None
