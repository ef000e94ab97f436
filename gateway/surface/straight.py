"""The app's way in: generation goes straight to its routes, all the rest through FastAPI."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

Around: TypeAlias = Callable[[ASGIApp], ASGIApp]


class StraightApp(FastAPI):
    """FastAPI, but for requests to the paths of `go_straight`: its layers cost each of them, and each chunk, more than
    routing by a table does. FastAPI has these paths, too, for other methods and for who mounts the app elsewhere.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._straight: Mapping[str, ASGIApp] = {}

    def go_straight(self, paths: Mapping[str, ASGIApp], around: Around) -> None:
        """POST to `paths` is answered by these apps, below the middleware that `around` puts around them."""
        self._straight = {path: around(app) for path, app in paths.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "http"
            and scope["method"] == "POST"
            and (app := self._straight.get(scope["path"])) is not None
            and not scope.get("root_path")
        ):
            await app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)
