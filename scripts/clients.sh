#!/usr/bin/env bash
# Makes .clients ready: what tests/clients/sql/foreign needs of npm, PyPI and pgjdbc, at exact versions. Needs
# node 20, npm, and Java 17 with its compiler; JDBC_JAR names a pgjdbc that is there already.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
there=$root/.clients
peewee=4.5.3
jdbc=42.7.4

die() { printf 'clients: %s\n' "$*" >&2; exit 1; }

command -v npm >/dev/null 2>&1 || die "npm is not there: install Node.js 20 or newer"
command -v java >/dev/null 2>&1 || die "java is not there: install a JDK 17"
mkdir -p "$there"
cp tests/clients/sql/foreign/package.json tests/clients/sql/foreign/package-lock.json "$there"
(cd "$there" && npm ci --no-audit --no-fund --silent)
[ -d "$there/python/playhouse" ] ||
  .venv/bin/python -m pip install --quiet --no-deps --target "$there/python" "peewee==$peewee"
scratch=$(mktemp -d "$there/scratch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
installed=/usr/share/java/postgresql.jar # Debian's libpostgresql-jdbc-java

from_debian() { # without installing it: needs apt's lists (apt-get update) and no rights
  command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 || return 1
  (cd "$scratch" && apt-get download -qq libpostgresql-jdbc-java >/dev/null 2>&1 &&
    dpkg-deb -x libpostgresql-jdbc-java_*.deb . && mv ".$installed" postgresql.jar)
}
from_maven() {
  curl --fail --silent --show-error --location --output "$scratch/postgresql.jar" \
    "https://repo1.maven.org/maven2/org/postgresql/postgresql/$jdbc/postgresql-$jdbc.jar"
}

if [ -n "${JDBC_JAR:-}" ]; then
  cp "$JDBC_JAR" "$there/postgresql.jar"
elif [ ! -f "$there/postgresql.jar" ]; then
  if [ -f "$installed" ]; then
    cp "$installed" "$scratch/postgresql.jar"
  else
    from_maven || from_debian ||
      die "pgjdbc cannot be had: install libpostgresql-jdbc-java, or say JDBC_JAR=FILE"
  fi
  mv "$scratch/postgresql.jar" "$there/postgresql.jar" # whole, or not there
fi
