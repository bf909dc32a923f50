"""Run the command line: ``python -m envbuilder`` and the ``envbuilder`` script."""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Until the command itself can end in order, a tenth of a second from here, Ctrl-C prints no traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from envbuilder.cli import main

if __name__ == "__main__":
    main()
