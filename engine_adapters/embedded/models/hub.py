"""A model from the Hugging Face hub: only the files that are loaded, into the hub library's own cache."""

from dataclasses import dataclass
from pathlib import Path

from engine_adapters.embedded.models.checkpoint import INDEX, SINGLE, check_code, read_config, weight_files
from engine_adapters.embedded.models.errors import ModelError, ModelNotFoundError, UnusableCheckpointError
from engine_adapters.embedded.models.progress import Progress, stage

# Small files first: a model that cannot be loaded is refused before gigabytes have come. Pickles never come.
_SMALL = ["*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken"]
_OTHER_FOLDERS = ["*/*"]  # other formats of the same weights


@dataclass(frozen=True, slots=True)
class HubModel:
    """A downloaded snapshot."""

    path: Path
    commit: str  # the revision it resolved to


def download(name: str, *, revision: str | None, trust_remote_code: bool, progress: Progress) -> HubModel:
    """Bring the model to this machine; what is in the hub's cache already is not fetched again.

    With HF_HUB_OFFLINE=1, or when the hub cannot be reached, the cached copy is used.

    Raises:
        ModelNotFoundError: the hub does not give it out, or cannot be reached and nothing is cached.
        UnusableCheckpointError, RemoteCodeRefusedError: what is there cannot be loaded.
    """
    code = ["*.py"] if trust_remote_code else []
    path = _snapshot(name, revision, [*_SMALL, *code], f"{name}: fetching its configuration", progress)
    check_code(path, read_config(path), trust_remote_code=trust_remote_code)
    # The weights come from the very commit whose configuration was checked.
    commit = path.name
    wanted = list(weight_files(path)) if (path / INDEX).is_file() else [SINGLE]
    if not all((path / file).is_file() for file in wanted):
        path = _snapshot(name, commit, wanted, f"{name}: fetching its weights", progress)
    if not all((path / file).is_file() for file in wanted):
        raise UnusableCheckpointError(
            f"{name} has no {wanted[0]} at the hub. Pickled weights (*.bin) are not loaded, since reading "
            "them can run any code: pick a revision or a fork that has safetensors, or convert the model to "
            "a local folder"
        )
    return HubModel(path, commit)


def _snapshot(name: str, revision: str | None, files: list[str], text: str, progress: Progress) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        with stage(progress, text):
            path = snapshot_download(
                name, revision=revision, allow_patterns=files, ignore_patterns=_OTHER_FOLDERS
            )
    except (OSError, HFValidationError) as error:
        raise _explained(name, revision, error) from error
    return Path(path)


def _explained(name: str, revision: str | None, error: Exception) -> ModelError:
    """The hub library's error with its cause and what to do, most special class first."""
    from huggingface_hub import errors

    local = "or name a local folder with --model"
    match error:
        case errors.GatedRepoError():
            text = (
                f"{name} is gated: accept its terms at the hub, then set HF_TOKEN to a token of that account"
            )
        case errors.RepositoryNotFoundError():
            text = f"the hub has no model {name}, or it is private: check the spelling, set HF_TOKEN, {local}"
        case errors.RevisionNotFoundError():
            text = f"{name} has no revision {revision}: name a branch, tag or commit that is there"
        case errors.HFValidationError():
            text = (
                f"{name!r} is neither a folder here nor a name at the hub (owner/model): check the spelling"
            )
        case (
            errors.LocalEntryNotFoundError()
            | errors.OfflineModeIsEnabled()
            | errors.IncompleteSnapshotError()
        ):
            text = (
                f"{name} is not in the local hub cache, and the hub is off (HF_HUB_OFFLINE) or cannot be "
                f"reached: go online once to fetch it, {local}"
            )
        case _:
            text = f"{name} could not be fetched from the hub ({error}): check network and disk, {local}"
    return ModelNotFoundError(text)
