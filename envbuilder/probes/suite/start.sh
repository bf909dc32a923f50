#!/bin/sh
# Start the probes with a Python of the image, its own PATH first; which of them has TensorFlow, they find out (seek.py).
# Exit 3: no Python here has it. Exit 4: there is one, and it does not start; its own words go to standard error.
# The order on standard input is for the runner alone: nothing else here may read it. Any process of this user can open this
# shell's standard input by /proc, so nothing of the image's own (site, .pth files) runs before the runner has read it.
here=${0%/*}
code=3
for python in python python3 /opt/venv/bin/python /opt/conda/bin/python /opt/*/bin/python3 /usr/local/bin/python3 \
    /usr/bin/python3 /usr/local/bin/python3.[0-9] /usr/local/bin/python3.[0-9][0-9] /usr/bin/python3.[0-9] \
    /usr/bin/python3.[0-9][0-9] /root/*/bin/python3 /home/*/*/bin/python3; do
  command -v "$python" >/dev/null 2>&1 || continue
  if [ $# != 0 ] || words=$("$python" -I -S -c "" </dev/null 2>&1 >/dev/null); then
    set -- "$@" "$python"
  else
    code=4
    echo "start.sh: $python does not start: $words" >&2
  fi
done
[ $# = 0 ] || exec "$1" -I -S "$here" --seek "$code" "$@"
[ $code = 4 ] || echo "start.sh: no Python here has TensorFlow" >&2
exit $code
