# shellcheck shell=bash
# Messages, and Debian packages.

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'setup: error: %s\n  next: %s\n' "$1" "$2" >&2; exit 5; }
have() { command -v "$1" >/dev/null 2>&1; }
can_install() { [ "$(id -u)" = 0 ] && have apt-get; }

# Install packages without starting their services: a registry would listen on every interface.
# APT_TRIGGERS=later leaves what packages trigger (man-db's index takes 10 s) to the next call.
apt_install() {
  say "installing $* (apt)"
  local policy=/usr/sbin/policy-rc.d added=no code=0 options=(-qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)
  if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy && added=yes
  fi
  [ "${APT_TRIGGERS:-}" != later ] || options+=(-o Dpkg::Options::=--no-triggers)
  export DEBIAN_FRONTEND=noninteractive
  {
    { [ -n "${APT_UPDATED:-}" ] || apt-get "${options[@]}" update; } &&
      apt-get "${options[@]}" -y install --no-install-recommends "$@"
  } >&2 || code=$?
  APT_UPDATED=yes
  [ $added = no ] || rm -f $policy
  [ $code = 0 ] || fail "apt-get could not install $*" "see its messages above"
}

apt_install_or_say() {
  if can_install; then apt_install "$@"; else say "not installed: $*; tests that need them are skipped (root can install them)"; fi
}
