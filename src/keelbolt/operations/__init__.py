"""The operations API: operations outside A2A, as JSON, for the explorer, the command line and operators.

`table.ROUTES` lists its routes; each names a handler here. `keelbolt.server.operations` serves them over HTTP.
"""
