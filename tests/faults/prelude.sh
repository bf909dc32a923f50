# shellcheck shell=bash
# What the lines of faults.yaml use. $E is envbuilder, $REPOSITORY the checkout, $PORT the fault's server.
QUICK=tf2.20.0-py311-cpu-bookworm-runtime
export CACHE=$XDG_CACHE_HOME/envbuilder

check() { $E check --tensorflow 2.20.0 --driver 570.124.06 --gpu H100; }
fill() { head -c 40M /dev/zero >fill 2>/dev/null; }
nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"; }
index() { UV_DEFAULT_INDEX=$1 PIP_CONFIG_FILE=/dev/null "${@:2}"; }
# Begin with a committed context, or with one whose Dockerfile is outdated.
context() { mkdir -p images && cp -r "$REPOSITORY/images/$QUICK" images; }
outdated() { context && echo x >"images/$QUICK/Dockerfile"; }
# Run a command with a C library that fails for files whose path contains a word: lying ABOUT HOW=VALUE... -- COMMAND
lying() {
  local about=$1 settings=()
  shift
  while [ "$1" != -- ]; do settings+=("$1"); shift; done
  shift
  env LD_PRELOAD="$LYING" LIE_ABOUT="$about" "${settings[@]}" "$@"
}
# Docker's settings in c/, and the file that describes the context "far".
docker_settings() {
  META=c/contexts/meta/$(printf far | sha256sum | cut -d' ' -f1)/meta.json
  mkdir -p "$(dirname "$META")"
}
