"""What can be wrong with the device of a reservation pod."""

from __future__ import annotations


class NotUsable(Exception):
    """This way of asking for devices cannot be used in this container; the text says what is missing."""


class DeviceError(Exception):
    """The device cannot be determined; the text says what was found and what to do."""
