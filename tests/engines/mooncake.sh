#!/usr/bin/env bash
# Puts Mooncake Store (its master and its Python client, built without CUDA, 260 MB) where the tests look for it. What is
# there stays.
#
#   tests/engines/mooncake.sh [FOLDER]     FOLDER: where it goes
#   PYTHON=.venv/bin/python                the interpreter the tests run with
#
# The tests find another folder through KVGATE_MOONCAKE=FOLDER.
set -euo pipefail

folder=${1:-${KVGATE_MOONCAKE:-${KVGATE_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/kvgate}/mooncake}}
python=${PYTHON:-python3}
mooncake=mooncake-transfer-engine-non-cuda==0.3.13.post1
libraries=(libibverbs1 libnl-3-200 libnl-route-3-200)

if [ ! -x "$folder/mooncake/mooncake_master" ]; then
  # without what it requires: that serves its other commands
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$folder" "$mooncake"
  chmod +x "$folder/mooncake/mooncake_master"
fi

works() { PYTHONPATH=$folder "$python" -c 'import mooncake.store' 2>/dev/null; }
if ! works && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get install --yes --quiet "${libraries[@]}" >/dev/null
fi
works || { echo "Mooncake lacks system libraries: apt-get install ${libraries[*]} (or what they are called here)" >&2; exit 1; }
echo "Mooncake Store is ready: KVGATE_MOONCAKE=$folder"
