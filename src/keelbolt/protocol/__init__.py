"""A2A on the wire: its words, its versions, its errors. Pure: no I/O, no clock."""
