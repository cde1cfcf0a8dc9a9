//! The Python module: convert, release the GIL, call, convert errors.
