"""The web page (extra `app`), for images from anybody.

`server` serves what `page` lays out, behind `guard`; `studio` does the work with what `state`
offers, on uploads that `decoder` reads within the bounds of `uploads`, in a `folder` of its own.
"""

__all__ = ["decoder", "folder", "guard", "page", "server", "state", "studio", "uploads"]
