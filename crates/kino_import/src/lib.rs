//! Other people's files: walk (metadata), plan (mapping), frames (lazy).
