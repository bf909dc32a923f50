"""What runs inside an image, or on a host with no container: the standard library plus the framework under test.

``suite`` is the validation suite, ``upgrade`` what both sides of an upgrade are asked, ``capture`` a report's one file.
"""
