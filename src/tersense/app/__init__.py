"""The web page (extra `app`): `page` lays it out and serves it, `state` is what it works with."""

__all__ = ["page", "state"]
