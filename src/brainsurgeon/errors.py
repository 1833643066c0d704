"""The one error type that is meant for users: what was expected, what came, what to do."""


class BrainsurgeonError(ValueError):
    """Input that cannot be worked with; the message says what to do about it."""


class UnknownSettingError(BrainsurgeonError):
    """A setting that the method does not have; another may."""
