//! From a dtype to the Rust type of its values.

/// Runs code that is generic over the value type, with the type for `dtype`.
///
/// `with_dtype!(ty.dtype(), T => run.encode::<T>(out))`
macro_rules! with_dtype {
    ($dtype:expr, $value:ident => $code:expr) => {
        with_dtype!(@ $dtype, $value, $code;
            Bool u8, U8 u8, U16 u16, U32 u32, U64 u64, I8 i8, I16 i16, I32 i32, I64 i64,
            F16 half::f16, F32 f32, F64 f64)
    };
    (@ $dtype:expr, $value:ident, $code:expr; $($name:ident $type:ty),+) => {
        match $dtype {
            $($crate::frame::Dtype::$name => {
                type $value = $type;
                $code
            })+
        }
    };
}

pub(crate) use with_dtype;
