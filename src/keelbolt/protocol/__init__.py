"""The A2A protocol: types, versions, codecs and errors. Pure: no I/O, no clock."""
