# shellcheck shell=bash
# The virtual environment .venv.

readonly STAMP=.venv/.setup

find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3.13 python3.12 python3.11 python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

# Install Python and its venv module if this host lacks them; Debian has venv in a package of its own.
python_packages() {
  local python
  if python=$(find_python) && "$python" -c 'import ensurepip, venv' 2>/dev/null; then return; fi
  can_install || fail "there is no Python 3.11 or newer with venv" "install one, or name it: PYTHON=/path/to/python make setup"
  apt_install python3 python3-venv
  find_python >/dev/null || fail "this system's Python is older than 3.11" "PYTHON=/path/to/python make setup"
}

# Run pip for .venv from the wheels of ensurepip, which Debian keeps in a folder of its own: installing it takes longer
# than everything else in .venv.
carried_pip() {
  local python=.venv/bin/python wheels
  wheels=$(find "$($python -c 'import ensurepip; print(*ensurepip.__path__)')" /usr/share/python-wheels -name '*.whl' \
    2>/dev/null | tr '\n' :)
  PYTHONPATH=$wheels $python -m pip "$@"
}

# Install by uv, with pip's settings, which uv does not read; by pip if uv fails.
install() {
  local python=.venv/bin/python uv settings
  export PIP_DISABLE_PIP_VERSION_CHECK=1
  have uv || [ -x .venv/bin/uv ] || carried_pip install --quiet --no-compile uv || return 1
  uv=$(command -v uv || echo .venv/bin/uv)
  if settings=$(PYTHONPATH=. $python -m envbuilder.pypi.index_config) &&
    (eval "$settings" && "$uv" pip install --quiet --python $python "$@" >&2); then
    return
  fi
  say "uv could not install $*; trying pip"
  # --group needs pip 25.1; Debian 12 has 23.0.
  carried_pip install --quiet --upgrade 'pip>=25.1' && $python -m pip install --quiet "$@"
}

# Make .venv for `run` (the project) or `dev` (with the development tools), unless it is current.
make_venv() {
  local sum python options=()
  sum=$(sha256sum <pyproject.toml)
  if .venv/bin/python -c '' 2>/dev/null && grep -qsx "$sum \($1\|dev\)" $STAMP; then return; fi
  python=$(find_python)
  if ! .venv/bin/python -c '' 2>/dev/null; then
    say "creating .venv with $("$python" --version)"
    rm -rf .venv
    "$python" -m venv --without-pip .venv
  fi
  [ "$1" = run ] || options=(--group dev)
  install --editable . "${options[@]}" || fail "the project's dependencies could not be installed" "see the messages above"
  printf '%s %s\n' "$sum" "$1" >$STAMP
}

install_fuzz() {
  .venv/bin/python -c 'import atheris' 2>/dev/null || install --group fuzz ||
    fail "atheris could not be installed" "it has wheels for Linux and some versions of Python: PYTHON=/path/to/python make fuzz"
}
