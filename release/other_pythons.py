"""Can the wheel in dist/ be installed for other versions of Python? Resolves what it needs with pip.

What is checked: that for each version pip finds a set of wheels that fits all requirements of ours, extra by
extra, on Linux. Nothing is installed or run. torch is left out: pip would download half a gigabyte to read
what it needs, and gigabytes of CUDA packages after it.
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

VERSIONS = ("3.12", "3.13")
EXTRAS = ("", "envpool", "mujoco", "video", "plot", "onnx", "hub", "lab", "wandb", "trackio", "docs")
LEFT_OUT = "torch"
DIST = Path(__file__).parents[1] / "dist"


def requirements(wheel: Path, extra: str) -> list[str]:
    """What the wheel needs, or what an extra of it adds."""
    packed = zipfile.ZipFile(wheel)
    (metadata,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
    found: list[str] = []
    for line in Parser().parsestr(packed.read(metadata).decode()).get_all("Requires-Dist", []):
        requirement, _, marker = line.partition(";")
        named = re.search(r'extra == "([\w-]+)"', marker)
        if (named[1] if named else "") == extra:
            found.append(requirement.strip())
    return found


def resolves(version: str, wanted: list[str], *options: str) -> str | None:
    """None if pip finds wheels for `wanted`, else what it says."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--only-binary=:all:"]
        command += ["--python-version", version, "--target", place, "--ignore-installed", *options, *wanted]
        done = subprocess.run(command, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def main() -> int:
    (wheel,) = DIST.glob("anybatch-*.whl")
    failed = False
    for version in VERSIONS:
        for extra in EXTRAS:
            wanted = [name for name in requirements(wheel, extra) if not name.startswith(LEFT_OUT)]
            problem = resolves(version, wanted)
            failed |= problem is not None
            print(f"{version}  {extra or 'the package itself':20} {problem or 'ok'}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
