"""Readers of the codecs and the order, written from `spec` alone and run on the golden files.

    golden.py   a golden file: what the decoder is given, and what must come out
    wire.py     numbers and zstd frames, as the pages of the specification share them
    order.py    which sample comes when
    vector.py   one module per page of the specification, with `decode(frame, params, shared, page)`

They share no code with the library and are slow on purpose: a loop says what a page of the
specification says. Where the two differ, one of them is wrong.
"""
