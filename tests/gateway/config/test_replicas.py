"""Where replicas are, as the file says it."""

from pathlib import Path
from textwrap import dedent

import pytest

from gateway.config.assemble import assembled
from gateway.config.errors import ConfigError
from gateway.config.load import load_config
from gateway.config.replicas import HealthConfig, ReplicatedEngine
from gateway.replicas.discovery.dns import DnsDiscovery, DnsName
from gateway.replicas.discovery.kubernetes.discovery import KubernetesDiscovery
from gateway.replicas.policy import PoolPolicy
from gateway.replicas.pool import EnginePool


def pool(folder: Path, text: str, **environ: str) -> EnginePool:
    file = folder / "kvgate.yaml"
    file.write_text("engines:\n- name: fleet\n  kind: sglang\n" + dedent(text).replace("\n", "\n  "))
    (made,) = assembled(load_config(file), environ).configured.pools
    return made


def message(folder: Path, text: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as refused:
        pool(folder, text, **environ)
    return "\n".join(refused.value.messages)


def test_a_url_is_one_replica_that_has_the_name_of_its_engine(tmp_path: Path) -> None:
    (remote,) = pool(tmp_path, "\n  url: http://127.0.0.1:1").replicas
    assert (remote.name, remote.replica) == ("fleet", "fleet")


def test_a_list_has_names_or_the_hosts(tmp_path: Path) -> None:
    text = """
      replicas:
      - http://10.0.0.1:30000
      - {name: big, url: "http://10.0.0.2:30000/v1"}
      models: {chat: qwen}
    """
    made = pool(tmp_path, text)
    assert [each.replica for each in made.replicas] == ["fleet/10.0.0.1:30000", "fleet/big"]
    assert {each.name for each in made.replicas} == {"fleet"}
    assert [each.engine.server for each in made.replicas] == [
        "http://10.0.0.1:30000",
        "http://10.0.0.2:30000",
    ]
    assert dict(made.models) == {"chat": "qwen"}


def test_a_name_is_looked_up(tmp_path: Path) -> None:
    made = pool(
        tmp_path, "\n  replicas: {dns: {name: sglang.llm.svc, port: 30000, every_s: 2}}\n  models: [chat]"
    )
    assert isinstance(made.discovery, DnsDiscovery)
    assert made.discovery._name == DnsName("sglang.llm.svc", 30000, every_s=2)
    assert made.replicas == ()
    assert dict(made.models) == {"chat": "chat"}  # so that its requests are told to come back, and not 404


def test_a_service_is_watched(tmp_path: Path) -> None:
    text = "\n  replicas: {kubernetes: {namespace: llm, service: sglang, port: http}}"
    made = pool(tmp_path, text, KUBERNETES_SERVICE_HOST="10.0.0.1", KUBERNETES_SERVICE_PORT="443")
    assert isinstance(made.discovery, KubernetesDiscovery)
    elsewhere = text.replace("port: http", "server: 'https://127.0.0.1:6443', token_file: t")
    assert isinstance(pool(tmp_path, elsewhere).discovery, KubernetesDiscovery)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: [a]", "engines[0]: write url, or replicas"),
        ("url: http://x\n  replicas: [http://y]", "engines[0].replicas: write url, or replicas"),
        ("replicas: []", "engines[0].replicas: write at least one URL"),
        ("replicas: [http://x, http://x]", "engines[0].replicas: two replicas have the same name"),
        ("replicas: [{name: a, url: http://x}, {name: b, url: http://x}]", "the same url"),
        ("replicas: [x]", "engines[0].replicas: write http://host:port"),
        ("replicas: {dns: {name: x}}", "engines[0].replicas.dns.port: field required"),
        ("replicas: {dns: {name: 'a b', port: 1}}", "engines[0].replicas.dns.name: "),
        ("replicas: {}", "engines[0].replicas: write a list of URLs, or dns, or kubernetes"),
        ("replicas: {kubernetes: {service: x, namespace: y, ca_file: z}}", "go with server"),
        ("replicas: {kubernetes: {service: X/y}}", "engines[0].replicas.kubernetes.service: "),
        (
            "replicas: {kubernetes: {service: x, namespace: y}}",
            "engines[0].replicas.kubernetes: KUBERNETES_SERVICE_HOST is not set",
        ),
        ("url: http://x\n  health: {max_ejected: 2}", "engines[0].health.max_ejected: "),
        ("url: http://x\n  retries: {trys: 2}", "engines[0].retries.trys: there is no such key"),
        ("url: http://x\n  timeout_s: 0", "engines[0].timeout_s: "),
    ],
)
def test_what_is_wrong_is_named_by_its_key(tmp_path: Path, text: str, said: str) -> None:
    assert said in message(tmp_path, f"\n  {text}")


def test_what_is_not_said_is_as_the_parts_have_it() -> None:
    assert ReplicatedEngine(url="http://x").policy() == PoolPolicy()


def test_what_is_said_reaches_the_parts(tmp_path: Path) -> None:
    text = """
      url: http://x
      health: {every_s: 1, failures: 2, probes: 3, max_ejected: 0.25, slow_factor: null, open_s: 100}
      retries: {tries: 1}
      hedge_after_s: 2
      timeout_s: 90
      stall_s: 30
    """
    made = pool(tmp_path, text).policy
    assert (made.breaker.failures, made.breaker.probes, made.max_ejected, made.outliers) == (2, 3, 0.25, None)
    assert made.breaker.longest_open_s == 100
    assert (made.retries.tries, made.hedge_after_s, made.timeout_s, made.stall_s) == (1, 2, 90, 30)
    assert HealthConfig(every_s=1).look().every_s == 1
