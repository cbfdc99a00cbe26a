"""The one exception for files and configurations that cannot be used."""


class TersenseError(ValueError):
    """Say in one line what came, what is allowed and what to do."""


def one_line(error: BaseException) -> str:
    """Return what an error says, short and without line breaks."""
    text = " ".join(str(error).split())
    return text[:300] or type(error).__name__
