//! Which panics are findings: all, except those that our code catches.

use std::panic;
use std::sync::Once;

/// Lets panics inside `rust_h264` through to `H264Decoder`, which turns them into errors. libFuzzer ends at any panic,
/// caught or not, and its builds check every sum for overflow, where a release wraps around.
pub fn expect_panics_of_h264() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let finding = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let at = panic.location();
            if !at.is_some_and(|at| at.file().contains("/rust_h264-")) {
                finding(panic);
            }
        }));
    });
}
