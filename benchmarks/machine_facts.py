"""What a measurement depends on, for its JSON file. Nothing that tells whose machine it was."""

import importlib.metadata
import os
import platform
from pathlib import Path

from anybatch import machine
from anybatch.runs import folder as run_folder


def machine_facts() -> dict[str, object]:
    engine = f"envpool {importlib.metadata.version('envpool')}"
    recorded = run_folder.facts(engine=engine, device="cpu", native_code=False, threads=0)
    return {
        **{name: recorded[name] for name in ("git_commit", "python", "torch", "engine", "command")},
        "cpu": cpu_name(),
        "vector_instructions": machine.vector_instructions(),
        "cores": machine.available_cores(),
        "load_at_start": os.getloadavg()[0],
    }


def cpu_name() -> str:
    """As Linux has it; elsewhere what Python knows."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
