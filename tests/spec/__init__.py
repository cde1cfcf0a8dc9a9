"""Readers of the codecs and the order, written from `spec` alone and run on the golden files.

    golden.py   a golden file: the decoder's input, and the expected output
    wire.py     integers and zstd frames, as shared by the pages of the specification
    order.py    which sample is at which index
    vector.py   one module per page of the specification, with `decode(frame, params, shared, page)`

They share no code with the library and are slow on purpose: loops follow the text of the
specification. Where the two differ, one of them is wrong.
"""
