"""What canon refuses.

CanonError
 +- JsonRefusedError   a text is not JSON, or its JSON cannot be rewritten without a loss
 +- ModelFolderError   the model's folder cannot be used: a file is missing, unreadable, or a template does not compile
 +- PolicyError        a policy, a rule or a switch that does not exist
 +- TemplateError      one request cannot be turned into prompt tokens; `param` names the part of it that is at fault
     +- PromptTooLongError  it has more tokens than whoever asked would take
"""


class CanonError(Exception):
    """Root of everything canon raises on purpose."""


class JsonRefusedError(CanonError, ValueError):
    """The text is no JSON, or rewriting it might lose something. `reason` is a short name of what is wrong."""

    def __init__(self, reason: str, offset: int | None = None) -> None:
        super().__init__(reason if offset is None else f"{reason} at character {offset}")
        self.reason = reason
        self.offset = offset  # characters into the text; None: not known


class ModelFolderError(CanonError):
    """The model's folder has no usable tokenizer or chat template; the operator has to mend it."""


class PolicyError(CanonError, ValueError):
    """A policy, a rule, a switch or a rules version that does not exist; the message lists those that do."""


class TemplateError(CanonError):
    """A request that this model's chat template or tokenizer cannot take.

    `param` is the request's path at fault, for example `messages[2].content[0]`, or None where no part is to blame.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class PromptTooLongError(TemplateError):
    """The prompt has more tokens than were wanted at most. Not all were counted: there are `least`, or more."""

    def __init__(self, least: int, param: str | None = None) -> None:
        super().__init__(f"the prompt has {least} tokens or more", param)
        self.least = least
