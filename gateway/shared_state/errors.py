"""What goes wrong with the state that gateways share.

SharedStateError    a call had no answer; whoever called goes on alone
└── AwayError       the server is not there, which is known already or was found just now
"""


class SharedStateError(Exception):
    """The server answered with an error, or not at all."""


class AwayError(SharedStateError):
    """The server cannot be reached now."""
