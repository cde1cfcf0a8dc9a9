//! A shard as bytes: asks for byte ranges, gets bytes, never opens a file.
