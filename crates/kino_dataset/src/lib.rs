//! Versions, the episode table, episodes, the writer and the stores: all storage.
