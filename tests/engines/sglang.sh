#!/usr/bin/env bash
# Builds the environment in which tests run a real SGLang server on a CPU (about 3.3 GB, some minutes), once.
#
#   tests/engines/sglang.sh [FOLDER]     FOLDER: where it goes, by default where the tests look for it
#   PYTHON=python3.12                    the interpreter it is made from (3.10 or newer)
#
# The tests find another folder through KVGATE_SGLANG_SERVER_PYTHON=FOLDER/bin/python.
set -euo pipefail

folder=${1:-${KVGATE_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/kvgate}/engines/sglang}
python=$folder/bin/python
ready=$folder/kvgate-ready
version=0.5.23

[ ! -e "$ready" ] || { echo "SGLang is ready: KVGATE_SGLANG_SERVER_PYTHON=$python"; exit 0; }
mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9
[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$folder"
install() { "$python" -m pip install --quiet --disable-pip-version-check "$@"; }

echo "SGLang: installing PyTorch and Transformers"
install torch==2.13.0 transformers==5.19.0
echo "SGLang: installing SGLang $version and what its server imports"
install --no-deps "sglang==$version"
install orjson fastapi uvicorn uvloop pyzmq msgspec prometheus-client psutil pybase64 python-multipart requests \
    setproctitle aiohttp einops partial_json_parser pillow interegular openai==2.8.0 openai-harmony==0.0.4 tiktoken \
    zstandard xxhash watchfiles 'llguidance<2' scipy blobfile==3.0.0 distro easydict nvidia-ml-py py-spy \
    python-dateutil triton IPython xgrammar==0.2.7 compressed-tensors==0.18.0 soundfile apache-tvm-ffi==0.1.11 \
    anthropic numba==0.65.1 ninja mistral_common dill datasets gguf sentencepiece
install --no-deps torchvision==0.28.0 outlines==0.1.11 timm==1.0.25

# The GPU kernels' package has no build for a CPU: a stand-in whose operations raise when they are called.
"$python" "$(dirname "$0")/sglang_without_gpu.py"

"$python" -c 'import sglang.srt.entrypoints.http_server, sglang.srt.managers.scheduler' 2>/dev/null || {
  echo "SGLang cannot be imported; \"$python -c 'import sglang.srt.entrypoints.http_server'\" says why" >&2; exit 1; }
touch "$ready"
echo "SGLang is ready: KVGATE_SGLANG_SERVER_PYTHON=$python"
