#!/bin/sh
# Run the probes with the first Python of the image that has TensorFlow; the image's own PATH comes first.
# Exit 3: no Python here has it. Exit 4: there is one, and it does not start; its own words go to standard error.
# The order on standard input is for the runner alone: nothing else here may read it.
here=${0%/*}
has='import importlib.util, sys; sys.exit(10 + (importlib.util.find_spec("tensorflow") is None))'
code=3
for python in python python3 /opt/venv/bin/python /opt/conda/bin/python /opt/*/bin/python3 /usr/local/bin/python3 \
    /usr/bin/python3 /usr/local/bin/python3.[0-9]* /usr/bin/python3.[0-9]* /root/*/bin/python3 /home/*/*/bin/python3; do
  command -v "$python" >/dev/null 2>&1 || continue
  words=$("$python" -c "$has" </dev/null 2>&1 >/dev/null)
  case $? in
  10) exec "$python" -I -S "$here" ;;
  11) ;;
  *) code=4; echo "start.sh: $python does not start: $words" >&2 ;;
  esac
done
[ $code = 4 ] || echo "start.sh: no Python here has TensorFlow" >&2
exit $code
