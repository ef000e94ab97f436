"""A name at the hub: fetched over HTTP from a hub of the test's own, cached, and refused with a cause."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.processes import run_python
from tests.tiny_models import Arch

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """Serves `repositories` the way the hub does, as far as downloads go."""

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)  # name -> file -> content
    gated: set[str] = field(default_factory=set)
    sent: list[str] = field(default_factory=list)  # files given out
    url: str = ""


def make_handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            parts = unquote(urlsplit(self.path).path).strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                name, rest = "/".join(parts[2:4]), parts[4:]
            else:
                name, rest = "/".join(parts[:2]), parts[2:]
            files = hub.repositories.get(name)
            if name in hub.gated:
                self.send(403, b"gated", {"X-Error-Code": "GatedRepo"}, body)
            elif files is None:
                self.send(401, b"no", {"X-Error-Code": "RepoNotFound"}, body)
            elif len(rest) > 1 and rest[1] not in ("main", COMMIT):
                self.send(404, b"no", {"X-Error-Code": "RevisionNotFound"}, body)
            elif rest[0] == "resolve":
                self.send_file(files.get("/".join(rest[2:])), "/".join(rest[2:]), body)
            elif rest[0] == "tree":
                tree = [
                    {"type": "file", "path": f, "size": len(c), "oid": git_id(c)} for f, c in files.items()
                ]
                self.send(200, json.dumps(tree).encode(), {"Content-Type": "application/json"}, body)
            else:
                info = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}
                self.send(200, json.dumps(info).encode(), {"Content-Type": "application/json"}, body)

        def send_file(self, content: bytes | None, name: str, body: bool) -> None:
            if content is None:
                self.send(404, b"no", {"X-Error-Code": "EntryNotFound"}, body)
                return
            if body:
                hub.sent.append(name)
            self.send(200, content, {"ETag": f'"{git_id(content)}"'}, body)

        def send(self, status: int, content: bytes, headers: dict[str, str], body: bool) -> None:
            self.send_response(status)
            for key, value in {
                "X-Repo-Commit": COMMIT,
                "Content-Length": str(len(content)),
                **headers,
            }.items():
                self.send_header(key, value)
            self.end_headers()
            if body:
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            print("HUB", format % args)

    return Handler


def git_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@pytest.fixture
def hub(tiny_model: Callable[[Arch], Path]) -> Iterator[Hub]:
    """A hub with the model tiny/llama, which also has files nobody needs."""
    files = {path.name: path.read_bytes() for path in tiny_model("llama").iterdir()}
    unneeded = {
        "pytorch_model.bin": b"x",
        "onnx/model.onnx": b"x",
        "original/model.safetensors": b"x",
        "a.py": b"x",
    }
    hub = Hub(repositories={"tiny/llama": files | unneeded})
    server = ThreadingHTTPServer(("127.0.0.1", 0), make_handler(hub))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield hub
    server.shutdown()
    server.server_close()
    thread.join()


def resolve_in_process(hub: Hub, home: Path, name: str, **environ: str) -> dict[str, str]:
    """Resolve `name` in a process of its own, since the hub library reads its settings when it is imported."""
    code = """
        import json, sys
        from pathlib import Path
        from engine_adapters.embedded.models import ModelError, resolve_model

        name, _, revision = sys.argv[1].partition("@")
        lines = []
        try:
            found = resolve_model(
                name, cache_dir=Path(sys.argv[2]), progress=lines.append, revision=revision or None
            )
            result = {"path": str(found.path), "name": found.name, "revision": found.revision}
        except ModelError as error:
            result = {"error": type(error).__name__, "text": str(error)}
        print(json.dumps(result | {"progress": "; ".join(lines)}))
    """
    urls = {"HF_ENDPOINT": hub.url, "HF_HOME": str(home)}
    done = run_python(code, name, str(home / "kvgate"), **urls | environ)
    assert done.returncode == 0, done.stderr
    result: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_a_model_is_fetched_once_and_only_what_is_loaded(hub: Hub, tmp_path: Path) -> None:
    found = resolve_in_process(hub, tmp_path, "tiny/llama")
    assert (found["name"], found["revision"]) == ("tiny/llama", COMMIT)
    assert sorted(hub.sent) == [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert "fetching its weights" in found["progress"]
    weights = Path(found["path"]) / "model.safetensors"
    assert weights.read_bytes() == hub.repositories["tiny/llama"]["model.safetensors"]
    hub.sent.clear()
    again = resolve_in_process(hub, tmp_path, "tiny/llama")
    assert (again["path"], hub.sent) == (found["path"], [])
    assert "fetching its weights" not in again["progress"]


def test_offline_the_cached_copy_is_used(hub: Hub, tmp_path: Path) -> None:
    found = resolve_in_process(hub, tmp_path, "tiny/llama")
    hub.repositories.clear()
    assert resolve_in_process(hub, tmp_path, "tiny/llama", HF_HUB_OFFLINE="1")["path"] == found["path"]


def test_with_the_hub_out_of_reach_the_cached_copy_is_used(hub: Hub, tmp_path: Path) -> None:
    found = resolve_in_process(hub, tmp_path, "tiny/llama")
    nowhere = Hub(url="http://127.0.0.1:9")
    assert resolve_in_process(nowhere, tmp_path, "tiny/llama")["path"] == found["path"]


def test_shards_come_by_their_index(hub: Hub, tmp_path: Path) -> None:
    files = hub.repositories["tiny/llama"]
    files["odd-name.safetensors"] = files.pop("model.safetensors")
    index = {"weight_map": {"lm_head.weight": "odd-name.safetensors"}}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    found = resolve_in_process(hub, tmp_path, "tiny/llama")
    assert (Path(found["path"]) / "odd-name.safetensors").is_file()


def test_a_model_with_pickles_only_is_refused_before_they_come(hub: Hub, tmp_path: Path) -> None:
    del hub.repositories["tiny/llama"]["model.safetensors"]
    found = resolve_in_process(hub, tmp_path, "tiny/llama")
    assert found["error"] == "UnusableCheckpointError"
    assert "no model.safetensors" in found["text"]
    assert "pytorch_model.bin" not in hub.sent


def test_a_model_with_its_own_code_is_refused_before_its_weights_come(hub: Hub, tmp_path: Path) -> None:
    config = {"model_type": "homemade", "auto_map": {"AutoConfig": "a.Config"}}
    hub.repositories["tiny/llama"]["config.json"] = json.dumps(config).encode()
    found = resolve_in_process(hub, tmp_path, "tiny/llama")
    assert found["error"] == "RemoteCodeRefusedError"
    assert "model.safetensors" not in hub.sent
    assert "a.py" not in hub.sent


@pytest.mark.parametrize(
    ("name", "environ", "cause"),
    [
        ("tiny/unknown", {}, "the hub has no model tiny/unknown"),
        ("tiny/llama@no-such-branch", {}, "has no revision no-such-branch"),
        ("tiny/gated", {}, "accept its terms"),
        ("tiny/llama", {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE"),
        ("tiny/llama", {"HF_ENDPOINT": "http://127.0.0.1:9"}, "cannot be reached"),
        ("not a name", {}, "neither a folder here nor a name"),
    ],
)
def test_a_name_that_gives_nothing_says_why(
    hub: Hub, tmp_path: Path, name: str, environ: dict[str, str], cause: str
) -> None:
    hub.gated.add("tiny/gated")
    found = resolve_in_process(hub, tmp_path, name, **environ)
    assert found["error"] == "ModelNotFoundError"
    assert cause in found["text"]
