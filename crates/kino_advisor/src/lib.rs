//! Measures the machine, the data and the training loop, and says what to change.
