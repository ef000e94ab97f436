"""Commands of the `kvgate` command line, a module each."""
