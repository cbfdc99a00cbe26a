"""The one exception for files and configurations that cannot be used."""


class TersenseError(ValueError):
    """Say in one line what came, what is allowed and what to do."""
