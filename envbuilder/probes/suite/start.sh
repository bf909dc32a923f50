#!/bin/sh
# Run the probes with the first Python of the image that has TensorFlow; the image's own PATH comes first.
# Exit 3: no Python here has it.
here=$(dirname "$0")
has='import importlib.util, sys; sys.exit(importlib.util.find_spec("tensorflow") is None)'
for python in python python3 /opt/venv/bin/python /opt/conda/bin/python /opt/*/bin/python3 /usr/local/bin/python3 \
    /usr/bin/python3 /usr/local/bin/python3.[0-9]* /usr/bin/python3.[0-9]* /root/*/bin/python3 /home/*/*/bin/python3; do
  command -v "$python" >/dev/null 2>&1 || continue
  if "$python" -c "$has" 2>/dev/null; then
    exec "$python" "$here" "$@"
  fi
done
echo "start.sh: no Python here has TensorFlow" >&2
exit 3
