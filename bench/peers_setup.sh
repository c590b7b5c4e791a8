#!/usr/bin/env bash
# Puts the stores that Kvorum is measured against on a Debian machine: system packages, the load
# generator for etcd, and a Python environment. bench/PEERS.md tells what and why.
#
#   sudo bench/peers_setup.sh            everything, under $PEERS_HOME (/opt/peers)
#   bench/peers_setup.sh --no-packages   only the load generator and the environment (no root)
#
# Nothing is left running: services are kept from starting while they are installed, because the
# benchmarks start each peer themselves, on loopback, with its data in a folder of their own.
# May be run again at any time.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
home=${PEERS_HOME:-/opt/peers}

say() { printf 'peers: %s\n' "$*" >&2; }

packages=(
  etcd-server etcd-client             # Raft in Go
  golang-go golang-etcd-server-dev    # to build its load generator
  postgresql libpostgresql-jdbc-java  # the database under DBOS and beside Spark
  redis-server redis-tools
  wrk                                 # load for HTTP
)

install_packages() {
  local policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    # Debian asks this file whether a service may start; 101 means no.
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  apt-get update -q
  DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${packages[@]}" </dev/null
}

# Debian ships etcd's own Go client as source, so no module is fetched.
build_etcdload() {
  local work=$home/build
  mkdir -p "$work"
  cp "$root/bench/peers/etcdload.go" "$work/"
  (cd "$work" && GO111MODULE=off GOPATH="$work/gopath:/usr/share/gocode" go build -o etcdload.new .)
  mv -f "$work/etcdload.new" "$home/etcdload"
}

make_environment() {
  local python=${PYTHON:-python3} shared
  [ -x "$home/venv/bin/pip" ] || "$python" -m venv --clear "$home/venv"
  "$home/venv/bin/pip" install --quiet --disable-pip-version-check --no-input \
    dbos 'psycopg[binary]' grpcio msgpack msgspec orjson uvloop uvicorn httptools fastapi pysyncobj kazoo </dev/null
  # Spark is large: share the project's when it is there and of the same Python.
  shared=$(ls -d "$root"/.venv/lib/"$("$home/venv/bin/python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')"/site-packages 2>/dev/null || true)
  if [ -n "$shared" ] && [ -d "$shared/pyspark" ]; then
    "$home/venv/bin/python" -c 'import sys, sysconfig; open(sysconfig.get_path("purelib") + "/shared-spark.pth", "w").write(sys.argv[1] + "\n")' "$shared"
  else
    "$home/venv/bin/pip" install --quiet --disable-pip-version-check --no-input pyspark==4.3.0 pyarrow </dev/null
  fi
}

if [ "${1:-}" != --no-packages ]; then
  [ "$(id -u)" = 0 ] || { say "system packages need root: run with sudo, or with --no-packages"; exit 1; }
  say "installing ${packages[*]}"
  install_packages
fi
command -v go >/dev/null || { say "go is needed: run without --no-packages"; exit 1; }
mkdir -p "$home"
say "building the load generator for etcd"
build_etcdload
say "making the environment"
make_environment
say "ready; now: export PEERS_ETCDLOAD=$home/etcdload PYTHON=$home/venv/bin/python"
