"""SECURITY.md: for each sentence, a test fails if it is not true.

Those about code and about files are in tests/training/test_trusted_code.py and
tests/storage/test_hostile_folders.py, which have a test each that none is missing.
"""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import anybatch

ROOT = Path(__file__).parents[1]
SOURCES = sorted(Path(anybatch.__file__).parent.rglob("*.py"))
CODE = "tests/training/test_trusted_code.py::test_each_sentence_is_held_by_a_test"
FILES = "tests/storage/test_hostile_folders.py::test_every_sentence_about_files_is_quoted_by_a_test"
CRAFTED = "tests/storage/test_crafted_checkpoints.py::test_a_sample_of_all_corruptions_ends_in_sentences"
COPY = (
    "tests/training/test_trusted_code.py::"
    "test_the_copy_of_the_package_in_a_study_runs_its_cells_but_not_its_report"
)
HUB = "tests/export/test_hub.py::test_what_is_pushed_is_pulled_and_plays_the_same"
NATIVE = "tests/native/test_native_library.py"
HERE = "tests/test_security_page.py"
TESTS = {
    "You can open checkpoints, run folders, presets and reports without trusting their author.": CODE,
    "Do not continue a study or a tuning folder from someone you do not trust.": COPY,
    "Environments, networks and packages are code that runs with your rights.": CODE,
    # What you can open without trusting its author
    "Checkpoints and published policies are safetensors and JSON.": (
        "tests/export/test_hub.py::test_a_folder_has_a_card_weights_and_config_and_nothing_else"
    ),
    "Nothing is unpickled.": f"{HERE}::test_nothing_is_unpickled_or_evaluated",
    "Before a state is used, its names, shapes, types and numbers are compared with what the run needs; a "
    "damaged or crafted one is refused with a one-sentence error.": CRAFTED,
    "anybatch pull downloads only the kinds of file that a policy's folder can hold: safetensors, JSON, the "
    "card, an ONNX file, a video.": (
        "tests/export/test_hub.py::test_only_files_of_a_policy_are_downloaded_and_nothing_is_imported"
    ),
    "Presets, study files and other trainers' settings are read as TOML, JSON or YAML data; YAML is read "
    "with safe_load.": f"{HERE}::test_nothing_is_unpickled_or_evaluated",
    "Reports load no external scripts, and all text in them is escaped.": (
        "tests/lab/test_report.py::test_a_name_cannot_become_markup"
    ),
    # What you have to trust
    "A study or a tuning folder, if you continue it.": CODE,
    "Its cells run from the copy of the package inside it.": CODE,
    "anybatch report runs nothing from the folder.": CODE,
    "The native code cache, ~/.cache/anybatch or $XDG_CACHE_HOME/anybatch.": (
        f"{NATIVE}::test_a_cache_named_relative_to_the_working_folder_is_not_used"
    ),
    "Libraries in it are loaded, unless the folder or the file belongs to another user or others may write "
    "to it; native code is then not used.": f"{NATIVE}::test_nothing_is_loaded_from_where_others_may_write",
    "They are built from sources in the package, by the C compiler that CC names or that is found on the "
    "path, with the further options in ANYBATCH_CFLAGS.": (
        f"{HERE}::test_native_code_is_built_by_the_named_compiler"
    ),
    "A library that is damaged is built again.": f"{NATIVE}::test_a_truncated_library_is_compiled_again",
    "Your own environments and networks, and all installed packages.": CODE,
    "They are code.": CODE,
    "Checksums of checkpoints detect damage, not tampering: anyone who can change a checkpoint can also "
    "change its checksum.": CRAFTED,
    # What leaves the machine
    "Nothing, unless you ask for it:": f"{HERE}::test_a_run_calls_nobody_and_opens_no_port",
    "--record.wandb and --record.trackio send settings and metrics.": (
        "tests/runs/test_trackers.py::test_wandb_has_the_config_and_every_row_of_a_run_and_its_resume"
    ),
    "anybatch push uploads a policy with its card.": HUB,
    "anybatch pull downloads one.": HUB,
    "A run folder records versions, the commit and the command line, including any paths you typed, and "
    "nothing else that identifies the machine or its user.": (
        f"{HERE}::test_a_run_folder_tells_neither_machine_nor_user"
    ),
    "A run in one process opens no port.": f"{HERE}::test_a_run_calls_nobody_and_opens_no_port",
    "Several processes and machines and Collecting while learning describe which ports runs with several "
    "processes open, and whom they trust.": (
        f"{HERE}::test_the_pages_about_several_processes_tell_their_ports"
    ),
}
"""Each sentence and one test that fails without it. Requests to readers, at the end of the page, have
none."""


def sentences() -> set[str]:
    """Those of the page, without its last section and those that other tests hold one by one."""
    text = (ROOT / "SECURITY.md").read_text().partition("## Reporting")[0]
    for heading in ("## Which code", "## Which files"):
        before, _, rest = text.partition(heading)
        text = before + rest[rest.index("\n## ") :]
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    paragraphs = [
        " ".join(part.split())
        for part in re.split(r"\n\n(?:- )?|\n- ", text)
        if not part.strip().startswith("#")
    ]
    parts = (part for paragraph in paragraphs for part in re.split(r"(?<=[.:*]) (?=[A-Z`])", paragraph))
    return {re.sub(r"[*`]", "", part) for part in parts} - {""}


def test_every_sentence_has_a_test():
    assert sentences() == TESTS.keys()


@pytest.mark.parametrize("test", sorted(set(TESTS.values())))
def test_the_tests_exist(test: str):
    path, _, name = test.partition("::")
    assert f"\ndef {name}(" in (ROOT / path).read_text()


def test_nothing_is_unpickled_or_evaluated():
    modules = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
    calls = {"eval", "exec", "torch.load", "np.load", "numpy.load", "yaml.load", "yaml.unsafe_load"}
    yaml_calls: set[str] = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not modules & {name.partition(".")[0] for name in names}, path
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in calls, f"{called} in {path}"
                yaml_calls |= {called} if called.startswith("yaml.") else set()
    assert yaml_calls == {"yaml.safe_load"}


WATCHED = """
import os, sys
def refuse(event, arguments):
    if event in ("socket.bind", "socket.connect", "socket.getaddrinfo", "socket.sendto"):
        print("socket:", event, arguments[1:], file=sys.stderr)
        os._exit(7)
sys.addaudithook(refuse)
from pathlib import Path
from anybatch.cli import main
main(["train", "--env=toy:Match", "--num-envs=2", "--total-env-steps=300", "--run-dir=runs", "--name=a"])
main(["resume", "runs/a", "--total-env-steps=600"])
main(["evaluate", "runs/a"])
main(["report", "runs/a"])
inodes = {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if name.isdigit()
          and os.path.exists(f"/proc/self/fd/{name}")}
assert not [inode for inode in inodes if inode.startswith("socket:")], inodes
"""


def test_a_run_calls_nobody_and_opens_no_port(tmp_path: Path):
    done = subprocess.run([sys.executable, "-c", WATCHED], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_run_folder_tells_neither_machine_nor_user(tmp_path: Path):
    telling = {
        "HOME": "/tmp/home-of-somebody",
        "USER": "somebody",
        "LOGNAME": "somebody",
        "TZ": "Asia/Tehran",
    }
    words = [
        "train",
        "--env=toy:Match",
        "--num-envs=2",
        "--total-env-steps=300",
        "--run-dir=runs",
        "--name=run",
    ]
    cache = {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))}
    program = ["unshare", "--uts", "sh", "-c", 'hostname machine-of-somebody; exec "$@"', "sh"]
    if subprocess.run([*program, "true"], capture_output=True).returncode:
        program = []  # without the rights for another host name
    subprocess.run(
        [*program, sys.executable, "-m", "anybatch", *words],
        cwd=tmp_path,
        env=os.environ | telling | cache,
        capture_output=True,
        check=True,
    )
    for path in (tmp_path / "runs").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for told in ("somebody", "Tehran", str(tmp_path), str(ROOT), sys.prefix):
            assert told not in path.name and told.encode() not in content, path


def test_native_code_is_built_by_the_named_compiler(tmp_path: Path):
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec {shutil.which("cc")} "$@"\n')
    compiler.chmod(0o700)
    load = "from anybatch import native; print(native.library('float32')._name)"
    more = {"CC": str(compiler), "ANYBATCH_CFLAGS": "-O0 -DANYBATCH_MORE", "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", load], env=os.environ | more, capture_output=True, text=True)
    assert Path(done.stdout.strip()).parent == tmp_path / "anybatch", done.stderr
    version, *calls = [shlex.split(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert version == ["--version"]
    compiled = [call for call in calls if "-c" in call]
    own = {path.name for path in (Path(anybatch.__file__).parent / "native").glob("*.c")}
    assert {Path(word).name for call in compiled for word in call if word.endswith(".c")} == own
    assert all("-DANYBATCH_MORE" in call for call in compiled)


def test_the_pages_about_several_processes_tell_their_ports():
    for name, said in (
        ("scale", ["opens a port", "no port is open"]),
        ("actors", ["open no port", "trusts"]),
    ):
        page = (ROOT / "docs" / f"{name}.md").read_text()
        assert f"docs/{name}.md" in (ROOT / "SECURITY.md").read_text()
        assert all(words in page for words in said), name
