#!/usr/bin/env bash
# Adds LMCache's server and vLLM's connector to it to the environment that tests/engines/vllm.sh builds, once.
#
#   tests/engines/lmcache.sh [FOLDER]     FOLDER: vLLM's environment, by default where the tests look for it
#
# Without what it requires for GPUs; what its server and the connector import on a CPU is named here.
set -euo pipefail

folder=${1:-${KVGATE_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/kvgate}/engines/vllm}
python=$folder/bin/python
ready=$folder/kvgate-lmcache-ready
version=0.5.6

[ ! -e "$ready" ] || { echo "LMCache is ready beside vLLM: $folder"; exit 0; }
"$(dirname "$0")/vllm.sh" "$folder"
exec 9>"$folder.lock"
flock 9
install() { "$python" -m pip install --quiet --disable-pip-version-check --no-deps "$@"; }

echo "LMCache: installing LMCache $version"
install "lmcache==$version"
install aiofile aiofiles caio awscrt redis nvtx cufile-python opentelemetry-exporter-prometheus prometheus_client \
    sortedcontainers

# Where something is missing, the command says so and offers no server.
LMCACHE_DISABLE_BANNER=1 "$folder/bin/lmcache" server --help 2>/dev/null | grep -q -- --l1-size-gb || {
  echo "LMCache's server cannot be started; \"$folder/bin/lmcache server\" says why" >&2; exit 1; }
touch "$ready"
echo "LMCache is ready beside vLLM: $folder"
