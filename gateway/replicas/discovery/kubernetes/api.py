"""The few questions to Kubernetes' API that discovery has: list the slices of one Service, then watch them."""

import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PAGE = 500  # slices a page
_PAGES = 200  # of a list
_WATCH_S = 240  # after which the server ends a watch, and it is begun again
_CONNECT_S = 5.0
_ANSWER_S = 30.0
_LARGEST = 32 << 20  # bytes of a page, and of an event
_GONE = 410  # the version that a list or watch should go on from is too old


class KubernetesError(Exception):
    """The API cannot be asked, or answers something else than it should."""


class GoneError(KubernetesError):
    """HTTP 410: what happened since then is not known any more, so everything has to be listed again."""


@dataclass(frozen=True, slots=True)
class KubernetesAccess:
    """Where the API is, and how to prove who asks. Files are read anew each time: tokens are changed every hour."""

    server: str  # https://host:port
    token_file: Path | None = None
    ca_file: Path | None = None  # None: as this machine trusts


@dataclass(frozen=True, slots=True)
class Listed:
    """All slices by name, and the version of the list that a watch goes on from."""

    slices: Mapping[str, Mapping[str, Any]]
    version: str


@dataclass(frozen=True, slots=True)
class Event:
    """One change."""

    kind: str  # ADDED, MODIFIED, DELETED or BOOKMARK
    object: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Of the slice."""
        return str(_metadata(self.object).get("name"))

    @property
    def version(self) -> str | None:
        """That a watch can go on from behind this event."""
        version = _metadata(self.object).get("resourceVersion")
        return version if isinstance(version, str) else None


def in_cluster(environ: Mapping[str, str]) -> KubernetesAccess:
    """As a pod finds it; raises KubernetesError where this is none."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise KubernetesError(
            "KUBERNETES_SERVICE_HOST is not set: outside of a cluster say `server`, `token_file` and `ca_file`"
        )
    named = f"[{host}]" if ":" in host else host
    return KubernetesAccess(f"https://{named}:{port}", _ACCOUNT / "token", _ACCOUNT / "ca.crt")


def own_namespace(folder: Path = _ACCOUNT) -> str:
    """Of the pod that this is; raises KubernetesError."""
    try:
        return (folder / "namespace").read_text().strip()
    except OSError as error:
        raise KubernetesError(f"{error.filename} cannot be read: say `namespace`") from error


class SliceApi:
    """Questions about the slices of one Service."""

    def __init__(self, access: KubernetesAccess, namespace: str, service: str) -> None:
        self._access = access
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._selector = f"kubernetes.io/service-name={service}"

    @asynccontextmanager
    async def session(self) -> AsyncIterator["Session"]:
        """Connections to the API, with the token and the authorities that the files hold now."""
        access = self._access
        try:
            verify = (
                True if access.ca_file is None else ssl.create_default_context(cafile=str(access.ca_file))
            )
            headers = {"accept": "application/json", "user-agent": "kvgate"}
            if access.token_file is not None:
                headers["authorization"] = f"Bearer {_token(access.token_file)}"
        except OSError as error:
            raise KubernetesError(f"token or ca file cannot be read: {error}") from error
        timeout = httpx.Timeout(_ANSWER_S, connect=_CONNECT_S)
        # Neither proxies of the environment nor redirects: the token goes to the API and nowhere else.
        async with httpx.AsyncClient(
            base_url=access.server, headers=headers, verify=verify, timeout=timeout, trust_env=False
        ) as client:
            yield Session(client, self._path, self._selector)


class Session:
    """Made by `SliceApi.session`. Raises KubernetesError, whatever goes wrong."""

    def __init__(self, client: httpx.AsyncClient, path: str, selector: str) -> None:
        self._client = client
        self._path = path
        self._selector = selector

    async def listed(self) -> Listed:
        """All slices there are, page by page."""
        slices: dict[str, Mapping[str, Any]] = {}
        more: dict[str, str] = {}
        for _ in range(_PAGES):
            page = await self._page(more)
            items = page.get("items") or ()
            if not isinstance(items, list | tuple) or not all(isinstance(each, dict) for each in items):
                raise KubernetesError("a list has no items, or other things than slices")
            for each in items:
                slices[str(_metadata(each).get("name"))] = each
            metadata = _metadata(page)
            if not metadata.get("continue"):
                return Listed(slices, str(metadata.get("resourceVersion", "")))
            more = {"continue": str(metadata["continue"])}
        raise KubernetesError(f"a list has more than {_PAGES} pages")

    async def _page(self, more: Mapping[str, str]) -> Mapping[str, Any]:
        query = {"labelSelector": self._selector, "limit": str(_PAGE), **more}
        async with self._answer(query, _ANSWER_S) as answer:
            body = b""
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > _LARGEST:
                    raise KubernetesError(f"a list has more than {_LARGEST} bytes")
        return _object(body)

    @asynccontextmanager
    async def watching(self, version: str) -> AsyncIterator[AsyncIterator[Event]]:
        """Every change since `version`, until the server ends that, as it does every few minutes."""
        query = {
            "labelSelector": self._selector,
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_S),
        }
        # A connection that died without a word ends, too: the server should have ended the watch by then.
        async with self._answer(query, _WATCH_S + _ANSWER_S) as answer:
            yield _events(answer)

    @asynccontextmanager
    async def _answer(self, query: Mapping[str, str], read_s: float) -> AsyncIterator[httpx.Response]:
        timeout = httpx.Timeout(_ANSWER_S, connect=_CONNECT_S, read=read_s)
        try:
            async with self._client.stream("GET", self._path, params=query, timeout=timeout) as answer:
                if answer.status_code == _GONE:
                    raise GoneError("the version is too old")
                if answer.status_code != 200:
                    raise KubernetesError(f"the API answered {answer.status_code}{_hint(answer.status_code)}")
                yield answer
        except httpx.HTTPError as error:
            raise KubernetesError(f"{type(error).__name__}: {error}") from error


def _token(file: Path) -> str:
    """Checked here, since a header that is refused later is repeated in the error."""
    token = file.read_bytes().strip()
    if not re.fullmatch(rb"[!-~]+", token):
        raise KubernetesError(f"{file} holds no token: it is one line of printable ASCII")
    return token.decode()


def _hint(status: int) -> str:
    if status == 401:
        return ": it does not know the token"
    if status == 403:
        return ": the service account may not get, list and watch endpointslices"
    return ""


async def _events(answer: httpx.Response) -> AsyncIterator[Event]:
    left = b""
    async for piece in answer.aiter_bytes():
        *whole, left = (left + piece).split(b"\n")
        for line in whole:
            if line.strip():
                yield _event(_object(line))
        if len(left) > _LARGEST:
            raise KubernetesError(f"an event has more than {_LARGEST} bytes")


def _event(told: Mapping[str, Any]) -> Event:
    kind, given = told.get("type"), told.get("object")
    if not isinstance(kind, str) or not isinstance(given, Mapping):
        raise KubernetesError("a watch brought no event")
    if kind == "ERROR":
        if given.get("code") == _GONE:
            raise GoneError("the version is too old")
        raise KubernetesError(f"a watch ended with {given.get('code')} {given.get('reason')}")
    return Event(kind, given)


def _object(text: bytes) -> Mapping[str, Any]:
    try:
        told = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise KubernetesError("the API answered no JSON") from error
    if not isinstance(told, dict):
        raise KubernetesError("the API answered no object")
    return told


def _metadata(told: object) -> Mapping[str, Any]:
    metadata = told.get("metadata") if isinstance(told, Mapping) else None
    return metadata if isinstance(metadata, Mapping) else {}
