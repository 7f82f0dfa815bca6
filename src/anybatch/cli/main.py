"""`anybatch COMMAND …`: which command, and how its errors reach a person."""

import os
import sys
from collections.abc import Callable, Sequence

from anybatch import __version__
from anybatch.errors import UserError

USAGE = """anybatch: on-policy deep RL in which the batch size is a dial

usage: anybatch COMMAND [OPTIONS]

  train      train a policy: `anybatch train` alone runs PPO-EWMA on CartPole-v1
  plan       show the batches of a run and the numbers that follow, without training
  resume     go on with a run, also at another batch size
  evaluate   play episodes with the newest checkpoint of a run
  watch      make a video of the newest checkpoint of a run at play
  advise     say what a run's metrics mean for its settings
  presets    list the named configurations, or print one with the origin of each number
  doctor     check this machine: engines, libraries, speed

`anybatch COMMAND --help` says how: the common flags of train, plan, resume, evaluate and watch, and
`--help-all` every one.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. Exit code 2 and one sentence for what cannot be done, never a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        raise SystemExit(0 if words else 2)
    if words[0] == "--version":
        print(__version__)
        return
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does: my_package:MyEnv-v0 is found where it is being written
    name, *rest = words
    try:
        command(name)(rest)
    except UserError as error:
        print(f"anybatch {name}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:  # `anybatch presets | head`: the reader has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.filename is None:
            raise
        print(f"anybatch {name}: {error.filename}: {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("\nStopped. The newest checkpoint is from before.", file=sys.stderr)
        raise SystemExit(130) from None


def command(name: str) -> Callable[[list[str]], None]:
    # Imported late: `anybatch --help` must not wait for torch.
    from anybatch.cli import commands, doctor, preset_list

    table = {
        "train": commands.train,
        "plan": commands.plan,
        "resume": commands.resume,
        "evaluate": commands.evaluate,
        "watch": commands.watch,
        "advise": commands.advise,
        "presets": preset_list.presets,
        "doctor": doctor.doctor,
    }
    if name not in table:
        raise UserError(f"there is no such command; there are {', '.join(table)}")
    return table[name]
