"""Prompt tokens: a model's own chat template, rendered and encoded, where nothing that was seen is encoded again."""

from canon.errors import CanonError, ModelFolderError, TemplateError
from canon.tokens.control_token_scanner import ControlTokenScanner
from canon.tokens.limits import ChatLimits
from canon.tokens.prompt_tokenizer import ChatPrompt, ControlTokensInContent, PromptTokenizer

__all__ = [
    "CanonError",
    "ChatLimits",
    "ChatPrompt",
    "ControlTokenScanner",
    "ControlTokensInContent",
    "ModelFolderError",
    "PromptTokenizer",
    "TemplateError",
]
