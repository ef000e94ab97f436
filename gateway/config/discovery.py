"""From what the file says of replicas that come and go to who finds them."""

from collections.abc import Mapping

from gateway.config.errors import ConfigError
from gateway.config.replicas import FoundReplicas, KubernetesReplicas
from gateway.replicas.discovery.discovery import Discovery
from gateway.replicas.discovery.dns import DnsDiscovery
from gateway.replicas.discovery.kubernetes.api import (
    KubernetesAccess,
    KubernetesError,
    SliceApi,
    in_cluster,
    own_namespace,
)
from gateway.replicas.discovery.kubernetes.discovery import KubernetesDiscovery
from gateway.replicas.discovery.kubernetes.slices import ServicePort


def discovery_of(given: FoundReplicas, path: str, environ: Mapping[str, str]) -> Discovery:
    """Who finds them; raises ConfigError, naming `path`, where this process cannot ask."""
    if given.dns is not None:
        return DnsDiscovery(given.dns.dns_name())
    assert given.kubernetes is not None
    try:
        return _kubernetes(given.kubernetes, environ)
    except KubernetesError as error:
        raise ConfigError(f"{path}.kubernetes: {error}") from None


def _kubernetes(given: KubernetesReplicas, environ: Mapping[str, str]) -> KubernetesDiscovery:
    if given.server is None:
        access = in_cluster(environ)
    else:
        access = KubernetesAccess(given.server, given.token_file, given.ca_file)
    namespace = given.namespace or own_namespace()
    api = SliceApi(access, namespace, given.service)
    return KubernetesDiscovery(api, ServicePort(given.port, given.scheme), f"{namespace}/{given.service}")
