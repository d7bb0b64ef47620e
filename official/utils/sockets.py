"""Sockets of servers."""

import socket

from official.utils.errors import UserError


def listen(host: str, port: int, flags: str) -> socket.socket:
    """Returns a socket that listens; port 0 = any free one.

    Args:
      host: an address of this machine.
      port: the port.
      flags: what the user has given, for the message.

    Raises:
      UserError: the port is in use or not allowed, or the host is none of this machine.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise UserError(
            f"{flags}: {reason}: give another port, or --port=0 for any free one"
        ) from None
    return listener
