"""`anybatch check-env`: what is wrong with an environment, before training on it."""

from anybatch import api
from anybatch.cli.flags import CheckEnvFlags
from anybatch.cli.parser import Argv, parse


def check_env(words: list[str]) -> None:
    """Print one sentence for each finding."""
    flags = parse(CheckEnvFlags(), Argv(words))
    for finding in api.check_env(flags.env, flags.env_config) or ["nothing stands out"]:
        print(finding)
