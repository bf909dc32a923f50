"""Tools that every package uses: decoding, text for terminals, subprocesses."""
