"""The operations API: what A2A has no word for, as JSON, for the explorer, the command line and people.

`table.ROUTES` lists its routes; each names a handler here. `keelbolt.server.operations` serves them over HTTP.
"""
