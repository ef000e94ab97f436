#!/usr/bin/env bash
# Builds the environment in which `kvgate bench cache` measures SGLang's radix trees: a CPU PyTorch, SGLang's
# wheel and the few small packages its trees import (about 1.3 GB, a minute or two). No server, no GPU.
#
#   tests/engines/sglang_trees.sh [FOLDER]     FOLDER: where it goes, by default where the bench looks for it
#   PYTHON=python3.12                          the interpreter it is made from (3.10 or newer)
#
# The bench finds another folder through KVGATE_SGLANG_PYTHON=FOLDER/bin/python.
set -euo pipefail

folder=${1:-${KVGATE_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/kvgate}/sglang-trees}
python=$folder/bin/python

# SGLang's Rust tree is built for a range of PyTorch releases; this one has a small build without CUDA.
torch=torch==2.13.0
sglang=sglang==0.5.23

[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$folder"
install() { "$python" -m pip install --quiet --disable-pip-version-check "$@"; }

install "$torch" 'numpy>=2' msgspec orjson packaging psutil pybase64 pydantic pyzmq pillow tqdm requests aiohttp starlette
install --no-deps "$sglang"  # what it requires beyond that serves models; the worker does without

worker=$(cd "$(dirname "$0")/../.." && pwd)/bench/peers/sglang_trees_worker.py
"$python" "$worker" --check
echo "SGLang's radix trees are ready: KVGATE_SGLANG_PYTHON=$python"
