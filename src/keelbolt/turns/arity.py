"""How many arguments a function takes, counted as strictly as the storage contract asks for."""

from __future__ import annotations

import inspect


def arity_problem(function: object, count: int) -> str | None:
    """Why this can't be called with exactly so many arguments by position; None when it can.

    Counted are the parameters that must be given: those with a default don't count, and neither does ``self`` of a
    bound method. What a decorator hides is not looked through.
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
            return f"needs the keyword {parameter.name}, which nobody will pass; give it a default"
        if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD} and bare:
            needed += 1
    if needed == count:
        return None
    default = "; a parameter with a default does not count" if needed < count else ""
    return f"takes {needed} parameter{'' if needed == 1 else 's'}{default}"
