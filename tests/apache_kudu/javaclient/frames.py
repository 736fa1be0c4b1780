"""Builders of the trace frames that the Java client's process writes about its RPCs."""

MASTER = "master-127.1.1.1:7051"
MS = 1_000_000


def sent(at_ms, *, call=0, method="CreateTable", server=MASTER, tablet=None):
    """Build the frame that is traced when the client sends an RPC."""
    return frame("SEND_TO_SERVER", at_ms, "NONE", "", call, method, server, tablet)


def came(at_ms, code="OK", text="", *, call=0, method="CreateTable", server=MASTER, tablet=None):
    """Build the frame that is traced when the client gets an answer or gives up waiting for one."""
    return frame("RECEIVE_FROM_SERVER", at_ms, code, text, call, method, server, tablet)


def sleeps(at_ms, code, text, *, call=0, method="CreateTable"):
    """Build the frame that is traced when the client waits before it resends the RPC."""
    return frame("SLEEP_THEN_RETRY", at_ms, code, text, call, method, None, None)


def frame(action, at_ms, code, text, call, method, server, tablet):
    return {
        "call": call,
        "method": method,
        "action": action,
        "at_ns": at_ms * MS,
        "server": server,
        "tablet": tablet,
        "code": code,
        "text": text,
    }
