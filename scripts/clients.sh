#!/usr/bin/env bash
# Makes .clients ready: what tests/sql/foreign needs of npm, PyPI and pgjdbc, at exact versions. Needs
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
cp tests/sql/foreign/package.json tests/sql/foreign/package-lock.json "$there"
(cd "$there" && npm ci --no-audit --no-fund --silent)
[ -d "$there/python/playhouse" ] ||
  .venv/bin/python -m pip install --quiet --no-deps --target "$there/python" "peewee==$peewee"
if [ -n "${JDBC_JAR:-}" ]; then
  cp "$JDBC_JAR" "$there/postgresql.jar"
elif [ ! -f "$there/postgresql.jar" ]; then
  found=/usr/share/java/postgresql.jar # Debian's libpostgresql-jdbc-java
  if [ -f "$found" ]; then
    cp "$found" "$there/postgresql.jar"
  else
    curl --fail --silent --show-error --location --output "$there/postgresql.jar" \
      "https://repo1.maven.org/maven2/org/postgresql/postgresql/$jdbc/postgresql-$jdbc.jar" ||
      die "pgjdbc cannot be had: install libpostgresql-jdbc-java, or say JDBC_JAR=FILE"
  fi
fi
