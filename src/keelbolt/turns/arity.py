"""Counts the required parameters of a function, as strictly as the storage contract requires."""

from __future__ import annotations

import inspect


def arity_problem(function: object, count: int) -> str | None:
    """Return the reason why the function can't be called with exactly ``count`` positional arguments, or None.

    Only required parameters count, not those with a default or ``self`` of a bound method. Wrapped functions behind
    decorators are not inspected.
    """
    try:
        signature = inspect.signature(function, follow_wrapped=False)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "can't be inspected; wrap it in a function that names its parameters"
    needed = 0
    for parameter in signature.parameters.values():
        bare = parameter.default is parameter.empty
        if parameter.kind is parameter.VAR_POSITIONAL:
            return f"hides its parameters behind *{parameter.name}; name them"
        if parameter.kind is parameter.KEYWORD_ONLY and bare:
            return f"requires the keyword argument {parameter.name}, which the runner does not pass; give it a default"
        if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD} and bare:
            needed += 1
    if needed == count:
        return None
    default = "; a parameter with a default does not count" if needed < count else ""
    return f"takes {needed} parameter{'' if needed == 1 else 's'}{default}"
