#!/usr/bin/env bash
# Prints the home of a Java that Spark 4 can use (17 or newer): $JAVA_HOME, else the one on PATH,
# else one in $JVM_DIR (/usr/lib/jvm,
# where Linux distributions put it). Without one: one line of advice, exit 1.
set -u

major() { # of the Java at $1; prints nothing when it does not run
  "$1" -version 2>&1 </dev/null | sed -n 's/.*version "\([0-9][0-9]*\).*/\1/p' | head -n 1
}

usable() {
  local version
  [ -x "$1/bin/java" ] || return 1
  version=$(major "$1/bin/java")
  [ -n "$version" ] && [ "$version" -ge 17 ]
}

candidates=()
[ -n "${JAVA_HOME:-}" ] && candidates+=("$JAVA_HOME")
on_path=$(command -v java 2>/dev/null || true)
if [ -n "$on_path" ]; then
  on_path=$(readlink -f "$on_path" 2>/dev/null || printf '%s' "$on_path")
  candidates+=("${on_path%/bin/java}")
fi
shopt -s nullglob
candidates+=("${JVM_DIR:-/usr/lib/jvm}"/*17*)

for home in "${candidates[@]}"; do
  if usable "$home"; then
    printf '%s\n' "$home"
    exit 0
  fi
done
echo "Java 17 is needed for Spark: apt-get install openjdk-17-jre-headless, then run again" >&2
exit 1
