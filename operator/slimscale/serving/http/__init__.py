"""A small HTTP/1.1 server and client on asyncio Protocols and httptools.

Shared by router, sidecar and model server. Bodies are whole `bytes` (bounded), connections are kept
alive, nothing follows redirects. See `server.HttpServer`, `client.ClientPool`, `status.StatusServer`.
"""

from slimscale.serving.http.client import ClientPool, ClientResponse, ExchangeFailed
from slimscale.serving.http.deferred import Deferred
from slimscale.serving.http.messages import Handler, Limits, Request, Response, text_response
from slimscale.serving.http.server import HttpServer

__all__ = [
    "ClientPool",
    "ClientResponse",
    "Deferred",
    "ExchangeFailed",
    "Handler",
    "HttpServer",
    "Limits",
    "Request",
    "Response",
    "text_response",
]
