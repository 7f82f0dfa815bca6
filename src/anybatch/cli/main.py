"""`anybatch COMMAND …`: selects the command and prints its errors."""

import difflib
import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence

from anybatch import __version__
from anybatch.errors import UserError
from anybatch.runs import lost_output
from anybatch.runs.stop import Stopped
from anybatch.text import one_line

COMMANDS = {
    "train": ("training", "train a policy: `anybatch train` alone runs PPO-EWMA on CartPole-v1"),
    "plan": ("plan", "show a run's batches and settings, or another trainer's (--from)"),
    "resume": ("training", "continue a run, at the same or another batch size"),
    "evaluate": ("playing", "evaluate a checkpoint of a run: the newest, or the best"),
    "watch": ("playing", "make a video of a trained agent"),
    "export": ("publish", "write a policy as an ONNX file, or as a folder for the Hub"),
    "push": ("publish", "publish the policy of a run on the Hugging Face Hub"),
    "pull": ("publish", "download a policy from the Hub, to evaluate, watch or export it"),
    "advise": ("playing", "suggest changes to the settings of a run, based on its metrics"),
    "report": ("reporting", "write a page about runs, a study or a tuning"),
    "plot": ("reporting", "draw one metric of one or more runs as PNG, SVG or PDF"),
    "dial": ("reporting", "write a page with a slider: drag the batch, all numbers follow"),
    "tune": ("study", "tune a preset at a small batch, and check it on fresh seeds"),
    "study": ("study", "run an experiment of the papers, or your own, and judge its claims"),
    "check-env": ("playing", "look for mistakes in an environment before training on it"),
    "presets": ("preset_list", "list the presets, or print one with the origin of each number"),
    "doctor": ("doctor", "check this machine: engines, libraries, speed"),
}
"""The module of each command, imported when the command is typed since most import torch; and its summary."""
USAGE = f"""anybatch: on-policy deep RL in which the batch size is a dial

usage: anybatch COMMAND [FLAGS]

{chr(10).join(f"  {name:9}  {summary}" for name, (_, summary) in COMMANDS.items())}

`anybatch COMMAND --help` explains a command. Where it explains only the common
flags, `--help-all` explains every flag.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. What cannot be done ends with exit code 2 and one sentence, never a traceback."""
    lost_output.open_closed_streams()
    lost_output.replace_unknown_characters()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        raise SystemExit(0 if words else 2)
    if words[0] == "--version":
        print(__version__)
        return
    name, *rest = words
    try:
        validate_working_folder()
        run(name, rest)
        sys.stdout.flush()
    except UserError as error:
        if str(error):  # otherwise another rank has reported it
            print(one_line(f"anybatch {name}: {error}"), file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:  # `anybatch presets | head`: the reader has stopped reading
        lost_output.discard()
    except OSError as error:
        # Errors about files have their names: without one, it is the output that is on a full disk.
        where = error.filename or ("the output" if error.errno == errno.ENOSPC else None)
        if where is None or hasattr(error, "__notes__"):  # with a note, an environment's own
            raise
        lost_output.discard()
        print(one_line(f"anybatch {name}: {where}: {error.strerror}"), file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt as stop:
        stopped = stop if isinstance(stop, Stopped) else Stopped(signal.SIGINT)
        with lost_output.tolerated():
            print(f"\n{stopped}", file=sys.stderr)
        raise SystemExit(128 + stopped.signal) from None


def validate_working_folder() -> None:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError("the working folder was removed: change to another one first") from None


def run(name: str, words: list[str]) -> None:
    """Run a command, or print its help, which imports no engine."""
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean anybatch {near[0]}?" if near else "`anybatch --help` lists the commands"
        raise UserError(f"there is no such command; {hint}")
    if {"-h", "--help", "--help-all"} & set(words):
        from anybatch.cli import help_page

        help_page.show(name, words)
    else:
        module, _ = COMMANDS[name]
        command = getattr(importlib.import_module(f"anybatch.cli.{module}"), name.replace("-", "_"))
        command(words)
