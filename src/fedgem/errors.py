"""What goes wrong in ways that a user can mend."""


class InputError(ValueError):
    """The input is not what it must be; the message says what was found and what was expected."""


class StoredFileError(ValueError):
    """A file that fedgem wrote cannot be used: damaged, of another kind, or of a newer version."""


class WireError(ValueError):
    """Bytes that came over the network are not the message that they should be."""
