"""The logs of a StateStore: the data of traces, the validation of steering events, and reads of logs."""
