"""SGLang embedded: `sglang.Engine` in a process of its own, in the interpreter it is installed for."""
