"""Publishing on the Hugging Face Hub and downloading from it, through its own client."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anybatch.errors import UserError
from anybatch.export.hub_folder import CONTENT, new_folder
from anybatch.runs.record import RunRecord

NAME = re.compile(r"[\w.-]+/[\w.-]+")
CLIENT_FOLDER = ".cache"
"""Folder in which the client keeps records of its downloads."""


def check_name(repository: str) -> None:
    if not NAME.fullmatch(repository):
        raise UserError(f"{repository}: the name of a repository must have the form USER/NAME")


def validate_repository(repository: str, *, update: bool) -> None:
    """Check, before evaluating, that the name can be used and someone is logged in."""
    check_name(repository)
    hub = client()
    with as_user_error(repository):
        hub.HfApi().whoami()
        if not update and hub.HfApi().repo_exists(repository):
            raise UserError(f"{repository} exists already; --update uploads a new version into it")


def push(folder: Path, repository: str, *, private: bool, update: bool, message: str) -> str:
    """Upload a folder as a repository, which is created if necessary. Returns its address."""
    for path in folder.rglob("*"):
        if path.is_symlink():  # its target would be published, and may be a secret of the user
            raise UserError(f"{path} is a link: replace it by a copy if it is to be published")
    hub = client()
    with as_user_error(repository):
        api = hub.HfApi()
        made = api.create_repo(repository, private=private, exist_ok=update)
        api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            allow_patterns=list(CONTENT),
            # Otherwise a checkpoint with other env steps would remain next to the one of this version.
            delete_patterns=list(CONTENT),
            commit_message=message,
        )
    return str(made)


def pull(repository: str, out: Path, *, revision: str | None) -> RunRecord:
    """Download a policy to a new folder. Nothing it names is imported."""
    check_name(repository)
    hub = client()
    with new_folder(out) as aside:
        with as_user_error(repository, revision):
            hub.snapshot_download(
                repository, revision=revision, local_dir=aside, allow_patterns=list(CONTENT)
            )
        shutil.rmtree(aside / CLIENT_FOLDER, ignore_errors=True)
        validate_download(repository, aside)
    return RunRecord(out)


def validate_download(repository: str, folder: Path) -> None:
    """Refuse a download that is not a policy of this library, before it gets its final name."""
    try:
        record = RunRecord(folder)
        _ = record.config
        record.load_checkpoint(with_segments=False)
    except UserError as error:
        said = str(error).replace(f"{folder}/", "").replace(str(folder), "it")
        raise UserError(f"{repository} has no policy that this version can load: {said}") from error


def client() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise UserError(
            "the Hub needs the package huggingface_hub: install it with pip install 'anybatch[hub]'"
        ) from None
    return huggingface_hub


@contextmanager
def as_user_error(repository: str, revision: str | None = None) -> Iterator[None]:
    """Turn the client's errors into one sentence each."""
    from huggingface_hub import errors

    try:
        yield
    except errors.LocalTokenNotFoundError:
        raise UserError("you are not logged in to the Hub: log in with hf auth login") from None
    except errors.GatedRepoError:
        raise UserError(f"{repository} is gated: request access on its page first") from None
    except errors.RepositoryNotFoundError:
        raise UserError(
            f"there is no repository {repository}, or it is private and not yours (hf auth login)"
        ) from None
    except errors.RevisionNotFoundError:
        raise UserError(f"{repository} has no revision {revision}") from None
    except errors.HFValidationError as error:
        raise UserError(f"{repository}: {first_line(error)}") from None
    except errors.HfHubHTTPError as error:
        raise UserError(refusal(repository, error)) from None
    except Exception as error:
        # The client's HTTP library differs between its versions.
        names = {kind.__name__ for kind in type(error).__mro__}
        is_of_transport = bool(names & {"TransportError", "RequestException"})
        if not is_of_transport and not isinstance(error, ConnectionError | errors.LocalEntryNotFoundError):
            raise
        raise UserError(
            f"the Hub cannot be reached ({first_line(error)}): it needs a network connection to the Hub"
        ) from None


def refusal(repository: str, error: Any) -> str:
    status = error.response.status_code
    if status == 409:
        return f"{repository} exists already; --update uploads a new version into it"
    if status in (401, 403):
        return f"the Hub does not allow you to use {repository}: {first_line(error)} (hf auth login)"
    return f"the Hub refused {repository} with status {status}: {first_line(error)}"


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
