"""Replicas behind a Service, as a real server of the API's questions tells them over TLS."""

import asyncio
import datetime
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.replicas.discovery.backoff import Backoff
from gateway.replicas.discovery.kubernetes.api import KubernetesAccess, KubernetesError, SliceApi, in_cluster
from gateway.replicas.discovery.kubernetes.discovery import KubernetesDiscovery
from gateway.replicas.discovery.kubernetes.slices import ServicePort
from tests.gateway.replicas.discovery.kubernetes_api import TOKEN, ApiServer, api_server, endpoint, slice_of
from tests.waiting import PATIENCE_S, until


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of 127.0.0.1, its own authority: certificate and key."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubernetes")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return folder / "ca.crt", folder / "key"


class Seen:
    """The lists of a discovery that runs."""

    def __init__(self, discovery: KubernetesDiscovery) -> None:
        self.discovery = discovery
        self.lists: list[list[str]] = []
        self._more = asyncio.Condition()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for found in self.discovery.watch():
            async with self._more:
                self.lists.append([each.url.partition("://")[2] for each in found])
                self._more.notify_all()

    async def until(self, *urls: str) -> None:
        async with asyncio.timeout(PATIENCE_S), self._more:
            await self._more.wait_for(lambda: self.lists and self.lists[-1] == list(urls))


async def no_wait(seconds: float) -> None:
    await asyncio.sleep(min(seconds, 0.01))


@asynccontextmanager
async def watching(
    api: ApiServer, certificate: Path, token_file: Path, port: ServicePort | None = None
) -> AsyncIterator[Seen]:
    asked = SliceApi(KubernetesAccess(api.url, token_file, certificate), "llm", "engines")
    seen = Seen(
        KubernetesDiscovery(asked, port or ServicePort(), "llm/engines", no_wait, Backoff(lambda: 0.0))
    )
    try:
        yield seen
    finally:
        seen.task.cancel()
        await asyncio.wait([seen.task])


@pytest.fixture
async def api(certificate: tuple[Path, Path]) -> AsyncIterator[ApiServer]:
    async with api_server(*certificate) as server:
        await server.put(slice_of("engines-a", endpoint("10.0.0.1", "pod-1"), endpoint("10.0.0.2", "pod-2")))
        yield server


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


async def test_ready_endpoints_are_followed(api: ApiServer, certificate, token: Path) -> None:
    async with watching(api, certificate[0], token) as seen:
        await seen.until("10.0.0.1:30000", "10.0.0.2:30000")
        await api.put(
            slice_of("engines-a", endpoint("10.0.0.1", "pod-1"), endpoint("10.0.0.2", "pod-2", ready=False))
        )
        await seen.until("10.0.0.1:30000")
        await api.bookmark()
        await api.put(slice_of("engines-b", endpoint("10.0.1.1", "pod-0"), port=40000))
        await seen.until("10.0.1.1:40000", "10.0.0.1:30000")  # by their names
        await api.delete("engines-a")
        await seen.until("10.0.1.1:40000")
        await api.delete("engines-b")
        await seen.until()
    assert (api.lists, len(api.watches)) == (1, 1)


async def test_a_pod_that_ends_is_left_out_although_it_serves(
    api: ApiServer, certificate, token: Path
) -> None:
    async with watching(api, certificate[0], token) as seen:
        await seen.until("10.0.0.1:30000", "10.0.0.2:30000")
        leaving = endpoint("10.0.0.1", "pod-1", serving=True, terminating=True)
        await api.put(slice_of("engines-a", leaving, endpoint("10.0.0.2", "pod-2", ready=None)))
        await seen.until("10.0.0.2:30000")  # and what is not said counts as ready


async def test_a_cut_connection_goes_on_where_it_was(api: ApiServer, certificate, token: Path) -> None:
    async with watching(api, certificate[0], token) as seen:
        await seen.until("10.0.0.1:30000", "10.0.0.2:30000")
        await api.bookmark()
        await api.cut()
        await api.put(slice_of("engines-a", endpoint("10.0.0.9", "pod-9")))  # while nobody watches, perhaps
        await seen.until("10.0.0.9:30000")
    assert api.lists == 1
    assert seen.lists == [["10.0.0.1:30000", "10.0.0.2:30000"], ["10.0.0.9:30000"]]


async def test_what_was_missed_is_listed_again(api: ApiServer, certificate, token: Path) -> None:
    async with watching(api, certificate[0], token) as seen:
        await seen.until("10.0.0.1:30000", "10.0.0.2:30000")
        await api.put(slice_of("engines-b", endpoint("10.0.0.3", "pod-3")))
        await seen.until("10.0.0.1:30000", "10.0.0.2:30000", "10.0.0.3:30000")
        del api.slices["engines-a"]  # an event that nobody will ever see
        await api.expire()
        await seen.until("10.0.0.3:30000")
    assert api.lists == 2


async def test_a_watch_from_a_version_that_is_too_old_begins_anew(
    api: ApiServer, certificate, token: Path
) -> None:
    async with watching(api, certificate[0], token) as seen:
        await seen.until("10.0.0.1:30000", "10.0.0.2:30000")
        del api.slices["engines-a"]
        api.oldest = api.version = api.version + 10
        await api.cut()
        await seen.until()
    assert api.lists == 2


async def test_an_api_that_forgets_at_once_is_asked_less_and_less_often(
    api: ApiServer, certificate, token: Path
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(0)

    api.forgets = True
    asked = SliceApi(KubernetesAccess(api.url, token, certificate[0]), "llm", "engines")
    seen = Seen(KubernetesDiscovery(asked, ServicePort(), "llm/engines", sleep, Backoff(lambda: 1.0)))
    try:
        await seen.until("10.0.0.1:30000", "10.0.0.2:30000")
        await until(lambda: len(waits) >= 9)
        assert waits[:9] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
        assert len(seen.lists) == 1
    finally:
        seen.task.cancel()
        await asyncio.wait([seen.task])


@pytest.mark.parametrize("items", [[7], [None, {}], ["a"], {"a": 1}, "items"])
async def test_a_list_of_other_things_than_slices_changes_nothing(
    api: ApiServer, certificate, token: Path, items: object
) -> None:
    async with watching(api, certificate[0], token) as seen:
        await seen.until("10.0.0.1:30000", "10.0.0.2:30000")
        api.items = items
        await api.expire()
        await until(lambda: seen.discovery.failing)
        assert not seen.task.done()
        assert len(seen.lists) == 1
        api.items = None
        await api.delete("engines-a")
        await seen.until()


@pytest.mark.parametrize("held", [b"", b"\n", b"half\nof two", b"\xff\xfe", "caf\u00e9".encode()])
async def test_a_file_that_holds_no_token_is_waited_for_and_not_repeated(
    api: ApiServer, certificate, token: Path, held: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(token.write_bytes, held)
    async with watching(api, certificate[0], token) as seen:
        await until(lambda: seen.discovery.failing)
        assert api.lists == 0
        await asyncio.to_thread(token.write_text, TOKEN)
        await seen.until("10.0.0.1:30000", "10.0.0.2:30000")
    (said,) = [each for each in caplog.records if "cannot be watched" in each.getMessage()]
    assert str(said.fields["error"]).endswith("holds no token: it is one line of printable ASCII")
    assert "half" not in str(said.fields)


async def test_nobody_goes_while_the_api_is_away_and_that_is_told_once(
    api: ApiServer, certificate, token: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with watching(api, certificate[0], token) as seen:
        await seen.until("10.0.0.1:30000", "10.0.0.2:30000")
        api.refuse = 500
        await api.cut()
        await until(lambda: seen.discovery.failing, "it is known")
        assert len(seen.lists) == 1
        api.refuse = None
        await api.put(slice_of("engines-a", endpoint("10.0.0.1", "pod-1")))
        await seen.until("10.0.0.1:30000")
        assert not seen.discovery.failing
    assert [
        record.getMessage() for record in caplog.records if "cannot be watched" in record.getMessage()
    ] == ["endpoints cannot be watched; the replicas there are stay"]


async def test_tokens_are_read_anew(api: ApiServer, certificate, token: Path) -> None:
    async with watching(api, certificate[0], token) as seen:
        await seen.until("10.0.0.1:30000", "10.0.0.2:30000")
        api.token = "second-token"
        await asyncio.to_thread(token.write_text, "second-token")
        await api.cut()
        await api.put(slice_of("engines-a", endpoint("10.0.0.5", "pod-5")))
        await seen.until("10.0.0.5:30000")


async def test_an_api_that_nobody_vouches_for_is_told_nothing(
    api: ApiServer, token: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = SliceApi(KubernetesAccess(api.url, token, None), "llm", "engines")
    with pytest.raises(KubernetesError, match="CERTIFICATE_VERIFY_FAILED"):
        async with asked.session() as session:
            await session.listed()
    assert api.lists == 0


@pytest.mark.parametrize(("status", "hint"), [(401, "token"), (403, "get, list and watch endpointslices")])
async def test_what_an_account_may_not_do_is_said(
    api: ApiServer, certificate, token: Path, status: int, hint: str
) -> None:
    api.refuse = status
    asked = SliceApi(KubernetesAccess(api.url, token, certificate[0]), "llm", "engines")
    with pytest.raises(KubernetesError, match=hint):
        async with asked.session() as session:
            await session.listed()


async def test_lists_have_pages(api: ApiServer, certificate, token: Path) -> None:
    api.page = 2
    for number in range(5):
        await api.put(slice_of(f"engines-{number}", endpoint(f"10.1.0.{number}", f"q-{number}")))
    asked = SliceApi(KubernetesAccess(api.url, token, certificate[0]), "llm", "engines")
    async with asked.session() as session:
        listed = await session.listed()
    assert sorted(listed.slices) == sorted(api.slices)
    assert (listed.version, api.lists) == (str(api.version), 3)


async def test_a_list_without_an_end_is_not_read_for_ever(api: ApiServer, certificate, token: Path) -> None:
    api.page = 0
    asked = SliceApi(KubernetesAccess(api.url, token, certificate[0]), "llm", "engines")
    with pytest.raises(KubernetesError, match="more than 200 pages"):
        async with asked.session() as session:
            await session.listed()
    assert api.lists == 200


def test_a_pod_knows_where_its_api_is() -> None:
    found = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"})
    assert found.server == "https://[fd00::1]:6443"
    assert found.token_file is not None
    with pytest.raises(KubernetesError, match="token_file"):
        in_cluster({})
