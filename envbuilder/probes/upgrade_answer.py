"""A descriptor for the answer that nothing else can write to: frameworks and users' tests print where they like."""

import json
import os
import sys


class Channel:
    """The process's original standard output; whatever prints from here on goes to standard error."""

    def __init__(self):
        self.descriptor = os.dup(1)
        os.set_inheritable(self.descriptor, False)
        os.dup2(2, 1)

    def say(self, document):
        """Write one JSON document as a line."""
        line = json.dumps(document, sort_keys=True, default=str).encode() + b"\n"
        while line:
            line = line[os.write(self.descriptor, line) :]


def arguments():
    """Return the JSON document that the command line carries, and take this folder off the import path."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    return json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
