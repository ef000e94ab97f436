"""The default model's tokenizer, where the packages that make it are installed."""

import os
from collections.abc import Callable
from pathlib import Path

from canon.errors import ModelFolderError


def default_tokenizer(progress: Callable[[str], None]) -> Path:
    """Its folder; the model is converted at the first use on a machine.

    Raises:
        ModelFolderError: the model or a package is missing; the message says what to install.
    """
    from engine_adapters.embedded.models import ModelError, cache_dir, resolve_model

    try:
        return resolve_model(None, cache_dir=cache_dir(os.environ), progress=progress).tokenizer_path
    except ModuleNotFoundError as error:  # of what converts it
        raise ModelFolderError(
            f"The default model needs {error.name}: pip install 'kvgate[embedded]'"
        ) from None
    except ModelError as error:
        raise ModelFolderError(str(error)) from error
