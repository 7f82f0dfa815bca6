"""The machine's memory, cores and devices."""

import os
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from anybatch.errors import ConfigError

if TYPE_CHECKING:
    import torch

WITHOUT_AMX = "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"
"""Environment variable that keeps torch from using AMX; it must be set before torch computes anything."""
MULTIPLY_IN_BF16 = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"
BF16_TRIAL_SECONDS = 120.0
"""Longest trial of bf16 before it counts as hanging: on a busy machine, importing torch takes most of it."""
# Where Linux states a container's memory limit: version 2 of the interface, then version 1.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def available_bytes() -> int:
    """Memory that can still be used: the machine's, or the container's limit if that is less."""
    free = _meminfo_available() or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in map(Path, _LIMITS):
        text = path.read_text().strip() if path.is_file() else ""
        if text.isdigit():
            free = min(free, int(text))
    return free


def _meminfo_available() -> int | None:
    path = Path("/proc/meminfo")
    for line in path.read_text().splitlines() if path.is_file() else ():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return None


GPU_FILES = ("/dev/nvidiactl", "/dev/nvmap", "/dev/dxg", "/dev/kfd")
"""On Linux, one of these exists if torch may find a GPU: NVIDIA's driver, that of Jetson, WSL, ROCm."""


def device_name(name: str) -> str:
    """The device name, with `auto` resolved: a GPU of its own for each rank on this machine, else cpu."""
    if name != "auto":
        return name
    if sys.platform == "linux" and not any(map(os.path.exists, GPU_FILES)):
        return "cpu"  # without importing torch, for plans
    import torch

    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if not torch.cuda.is_available() or torch.cuda.device_count() < ranks_here:
        return "cpu"
    return "cuda" if ranks_here == 1 else f"cuda:{os.environ['LOCAL_RANK']}"


def usable_device(name: str) -> "torch.device":
    """The device of that name, or a ConfigError if torch cannot allocate on it."""
    import torch

    try:
        device = torch.device(device_name(name))
    except RuntimeError:  # torch would list every device it was ever built for
        raise ConfigError(f"device = {name} is not a device; use auto, cpu, cuda, cuda:1 or mps") from None
    try:
        torch.ones(1, device=device).item()  # the device meta has no data
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(f"device = {name} cannot be used: {textwrap.shorten(str(error), 160)}") from None
    return device


def fits_beside_training(count: int, device: "torch.device") -> bool:
    """Whether `count` bytes take at most half of the free memory of `device`: networks need the rest."""
    if device.type != "cuda":
        return True
    import torch

    free = torch.cuda.mem_get_info(device)[0]
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return 2 * count <= free + cached


def vector_instructions() -> list[str]:
    """The relevant vector instructions that this processor reports."""
    information = Path("/proc/cpuinfo")
    flags = set(information.read_text().split()) if information.is_file() else set[str]()
    return [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags]


def has_fast_bf16() -> bool:
    """Whether this processor has bf16 instructions."""
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(vector_instructions())


@cache
def bf16_fails() -> bool:
    """Whether a process that multiplies in bf16 on this processor crashes or hangs.

    Some virtual machines report AMX instructions but do not run them.
    """
    if "amx_bf16" not in vector_instructions():
        return False
    program = [sys.executable, "-c", MULTIPLY_IN_BF16]
    try:
        trial = subprocess.run(program, capture_output=True, check=False, timeout=BF16_TRIAL_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return trial.returncode != 0


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
