"""Errors that a person can act on. The command line prints their one sentence and exits with code 2."""


class UserError(ValueError):
    """A request cannot be fulfilled; the message says which, and what would work.

    A ValueError, because that is what tyro turns into a usage error when a config refuses its values.
    """


class ConfigError(UserError):
    """Two settings contradict each other, or one is out of range. The message names fields and values."""


class EnvError(UserError):
    """An environment does not exist, cannot be used, or returned a non-finite value."""


class CheckpointError(UserError):
    """A run folder has no usable checkpoint."""


class DiskError(UserError):
    """A file could not be written. Earlier files are intact."""


class TrainingError(UserError):
    """Training cannot continue: the loss or the gradient is non-finite."""


class RankError(UserError):
    """A run on several ranks ends because of another rank, which has reported why: the message is empty."""


class LostRankError(RuntimeError):
    """Another rank has ended or does not answer. Whatever started the ranks may restart them."""


def cause_of(error: Exception) -> str:
    """What went wrong, without the number of the error and the file, which the sentence names already.

    A file where a folder is needed is named: the system only says that it exists.
    """
    if isinstance(error, FileExistsError) and error.filename is not None:
        return f"{error.filename} is not a folder"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
