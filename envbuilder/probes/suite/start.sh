#!/bin/sh
# Start the probes with the first Python of the image that has TensorFlow; PATH is searched first.
# Exit 3: no Python has TensorFlow. Exit 4: a Python does not start; its own message is on standard error.
# The order on standard input is for the probes only.
here=${0%/*}
code=3
has_tensorflow='import sys
if sys.version_info[0] < 3: sys.exit(11)
import importlib.util
if not importlib.util.find_spec("tensorflow"): sys.exit(11)
sys.exit(10 if sys.version_info >= (3, 6) else "Python %d.%d is too old: the checks need 3.6" % sys.version_info[:2])'
for python in python python3 /opt/venv/bin/python /opt/conda/bin/python /opt/*/bin/python3 /usr/local/bin/python3 \
    /usr/bin/python3 /usr/local/bin/python3.[0-9] /usr/local/bin/python3.[0-9][0-9] /usr/bin/python3.[0-9] \
    /usr/bin/python3.[0-9][0-9] /root/*/bin/python3 /home/*/*/bin/python3; do
  command -v "$python" >/dev/null 2>&1 || continue
  "$python" -c "$has_tensorflow" </dev/null >/dev/null
  case $? in
    10) exec "$python" -I -S "$here" ;;
    11) ;;
    *)
      code=4
      echo "start.sh: $python does not start" >&2
      ;;
  esac
done
[ $code = 4 ] || echo "start.sh: no Python here has TensorFlow" >&2
exit $code
