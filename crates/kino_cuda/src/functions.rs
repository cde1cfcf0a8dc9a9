//! Functions of a library that is loaded at run time: one list of names and signatures is both the struct and how it is filled.
//!
//! ```text
//! functions! { init = b"cuInit\0": fn(c_uint); }   ─▶   struct Functions { init: … }   Functions::find(&library)
//! ```

/// Declares `Functions` in the file that calls it. `Code` is what each of them returns.
macro_rules! functions {
    ($($field:ident = $name:literal: fn($($arg:ty),*);)*) => {
        struct Functions {
            $($field: unsafe extern "C" fn($($arg),*) -> Code,)*
        }

        impl Functions {
            fn find(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $(
                        // SAFETY: the list has the signatures of the library's own header; a function is called only while
                        // the library is loaded, because one struct owns both.
                        $field: unsafe { *library.get::<unsafe extern "C" fn($($arg),*) -> Code>($name)? },
                    )*
                })
            }
        }
    };
}

pub(crate) use functions;
