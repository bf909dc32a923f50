# shellcheck shell=bash
# A container engine that answers.

readonly LOG=${TF_ENVBUILDER_ENGINE_LOG:-/var/log/envbuilder-dockerd.log}
readonly WAIT_S=60

engine_answers() {
  local at=${DOCKER_HOST:-unix:///var/run/docker.sock}
  if have docker; then
    docker version >/dev/null 2>&1
  elif have curl; then
    case $at in
      unix://*) curl -sf --max-time 2 --unix-socket "${at#unix://}" http://localhost/_ping >/dev/null ;;
      tcp://*) curl -sf --max-time 5 "http://${at#tcp://}/_ping" >/dev/null ;;
      *) return 1 ;;
    esac
  else
    [ -S "${at#unix://}" ]
  fi
}

engine_packages() {
  have mmdebstrap || echo mmdebstrap
  if ! engine_answers; then
    have dockerd || echo docker.io
    have iptables || echo iptables
  fi
}

# Start the engine if none answers, and wait for it.
require_engine() {
  ! engine_answers || return 0
  [ -z "${DOCKER_HOST:-}" ] || fail "no engine answers at DOCKER_HOST=$DOCKER_HOST" "start it, or unset DOCKER_HOST"
  if [ "$(id -u)" != 0 ]; then
    [ ! -S /var/run/docker.sock ] || [ -w /var/run/docker.sock ] ||
      fail "$(id -un) may not use the engine of this host" "sudo usermod -aG docker $(id -un), then log in again"
    fail "no container engine answers, and only root can install and start one" \
      "sudo scripts/setup engine, or install and start Docker 20.10 or newer yourself"
  fi
  have dockerd || fail "there is no container engine" "install and start Docker 20.10 or newer"
  say "starting the engine"
  if [ -d /run/systemd/system ]; then
    systemctl start docker >&2 || fail "systemd could not start docker" "journalctl -u docker"
  else
    : >"$LOG"
    # In a session of its own it outlives this script. Docker 20.10 dies of builds that share steps ("failed to get
    # edge", moby issue 42414), and systemd would start it again.
    setsid sh -c 'until dockerd; do sleep 1; done' >>"$LOG" 2>&1 </dev/null &
  fi
  local tries=$((WAIT_S * 5))
  until engine_answers; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || { tail -n 5 "$LOG" >&2 || true; fail "the engine does not answer after $WAIT_S s" "read $LOG"; }
    sleep 0.2
  done
}

# Bootstrap the quickstart's base while the engine is installed: `run` imports it next, unless a registry has one.
# A failure is reported by `run`, which tries again.
prepare_base() {
  local tries=600
  until have mmdebstrap || [ $tries = 0 ]; do
    tries=$((tries - 1))
    sleep 0.1
  done
  .venv/bin/python -c '
import contextlib
from envbuilder.catalog.store import load
from envbuilder.errors import InfrastructureError
from envbuilder.image.bases import prepare
from envbuilder.workspace import cache_dir
with contextlib.suppress(InfrastructureError):
    prepare(load().system("debian-bookworm"), cache_dir() / "bases", lambda line: print("base:", line))
' >&2
}
