//! The same loops over pixels, compiled once for every machine and once more for those with AVX2.
//!
//! A wheel is built for the oldest machines; the loops of [`colour`] written for the compiler to
//! turn into vector instructions are three times faster with newer ones, which are looked for at run time.
//! The naive twin of each is in the tests of [`colour`].

#![allow(
    unsafe_code,
    reason = "a function for newer machines may only be called on one; the check and the call are in this file"
)]

use super::colour::{self, Row};

/// Defines a function that calls the one of that name in `colour` with the best instructions there are.
macro_rules! with_best_instructions {
    ($name:ident, $out:ty) => {
        pub(super) fn $name(row: Row<'_>, out: $out) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn with_avx2(row: Row<'_>, out: $out) {
                    colour::$name(row, out);
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the one demand of `with_avx2` is that the machine has AVX2, which was just seen.
                    return unsafe { with_avx2(row, out) };
                }
            }
            colour::$name(row, out);
        }
    };
}

with_best_instructions!(half_to_pixels, &mut [u8]);
with_best_instructions!(full_to_pixels, &mut [u8]);
with_best_instructions!(half_to_colours, [&mut [u8]; 3]);
with_best_instructions!(full_to_colours, [&mut [u8]; 3]);
