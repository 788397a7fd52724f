"""What every operator that talks to other ranks asks of its parameters."""

from __future__ import annotations

from pathlib import Path

from ait_llm.hostatb.acceptance.base import Params, require_param
from ait_llm.opcheck.golden.base import Refusal

_LONGEST_DOMAIN, _LAST_DOMAIN = 128, 65535


def require_group(params: Params) -> None:
    """Refuse ranks outside their group, unless a rank table or a communicator names them.

    Raises:
        RefusedError: the parameters are refused.
    """
    mode, domain, table = params["commMode"], params["commDomain"], params["rankTableFile"]
    require_param(mode in (0, 1), "commMode", int(mode), "0, 1")
    require_param(
        len(domain) <= _LONGEST_DOMAIN, "commDomain", domain, f"length <= {_LONGEST_DOMAIN}"
    )
    if table:
        require_param(Path(table).exists(), "rankTableFile", table, '""')
        return
    if params["hcclComm"]:
        return
    size = params["rankSize"]
    require_param(size > 0, "rankSize", size, "> 0")
    for name in ("rank", "rankRoot"):
        require_param(0 <= params[name] < size, name, params[name], f">= 0, < {size}")


def require_domain(params: Params) -> None:
    """Refuse a domain that the library's own backends make no communicator of, as Execute does.

    Raises:
        RefusedError: it is neither a number nor ``number:size``.
    """
    if params["backend"] not in ("lccl", "lcoc") or params["commMode"] != 0:
        return
    domain = params["commDomain"]
    number, colon, size = domain.partition(":")
    fits = number.isdecimal() and int(number) <= _LAST_DOMAIN
    if colon:
        fits = fits and size.isdecimal() and int(size) > 0
    wanted = f"0 .. {_LAST_DOMAIN}"
    require_param(fits or not domain, "commDomain", domain, wanted, Refusal.COMM_EMPTY)


def require_backend(params: Params, *backends: str) -> None:
    """Refuse a backend that is none of ``backends``.

    Raises:
        RefusedError: it is none.
    """
    backend = params["backend"]
    require_param(backend in backends, "backend", backend, ", ".join(backends))
