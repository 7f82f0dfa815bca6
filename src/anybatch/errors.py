"""Errors that a person can act on. The command line prints their one sentence and exits with code 2."""


class UserError(ValueError):
    """Something asked for cannot be done; the message says what, and what would work.

    A ValueError, because that is what tyro turns into a usage error when a config refuses its values.
    """


class ConfigError(UserError):
    """Two settings contradict each other, or one is out of range. The message names fields and values."""


class EnvError(UserError):
    """An environment does not exist, cannot be used, or returned a non-finite value."""


class CheckpointError(UserError):
    """A run folder holds no checkpoint that can be used here."""


class DiskError(UserError):
    """A file could not be written. What had been saved before is intact."""


class TrainingError(UserError):
    """Training cannot continue: the loss or the gradient is non-finite."""


class RankError(UserError):
    """A run on several ranks ends because of another rank, which has said why: the message is empty."""


class LostRankError(RuntimeError):
    """Another rank has ended or does not answer. What started the ranks may start them again."""
