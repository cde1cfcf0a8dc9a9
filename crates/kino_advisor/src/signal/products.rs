//! Products of matrices: the only place that calls `matrixmultiply`, whose functions take pointers.
#![expect(
    unsafe_code,
    reason = "`matrixmultiply` takes pointers; the bounds are checked in `add`"
)]

/// A matrix inside a slice: element (r, c) is at `r * row + c * col`.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a, T> {
    values: &'a [T],
    rows: usize,
    cols: usize,
    row: usize,
    col: usize,
}

impl<'a, T> View<'a, T> {
    /// Packed rows of `cols` values.
    pub(super) fn rows(values: &'a [T], cols: usize) -> Self {
        Self {
            rows: values.len().checked_div(cols).unwrap_or(0),
            values,
            cols,
            row: cols,
            col: 1,
        }
    }

    /// Rows as columns.
    pub(super) fn transposed(self) -> Self {
        Self {
            values: self.values,
            rows: self.cols,
            cols: self.rows,
            row: self.col,
            col: self.row,
        }
    }

    fn is_inside(&self) -> bool {
        reach(self.rows, self.cols, (self.row, self.col))
            .is_some_and(|reach| reach <= self.values.len())
    }
}

/// How many values a matrix with these strides spans; `None` if more than there can be.
fn reach(rows: usize, cols: usize, (row, col): (usize, usize)) -> Option<usize> {
    if rows == 0 || cols == 0 {
        return Some(0);
    }
    let last_row = (rows - 1).checked_mul(row)?;
    let last_col = (cols - 1).checked_mul(col)?;
    let reach = last_row.checked_add(last_col)?.checked_add(1)?;
    isize::try_from(reach).is_ok().then_some(reach)
}

/// float32 and float64.
pub(super) trait Real: Copy {
    /// `c += scale · a · b`, for sizes and strides as in `matrixmultiply`.
    ///
    /// # Safety
    ///
    /// Every element of the three matrices must lie in memory that may be read, and written for `c`.
    unsafe fn gemm(
        size: [usize; 3],
        scale: Self,
        ab: [(*const Self, [isize; 2]); 2],
        c: (*mut Self, isize),
    );
}

macro_rules! real {
    ($type:ty, $gemm:path) => {
        impl Real for $type {
            unsafe fn gemm(
                [m, k, n]: [usize; 3],
                scale: Self,
                [(a, [ra, ca]), (b, [rb, cb])]: [(*const Self, [isize; 2]); 2],
                (c, rc): (*mut Self, isize),
            ) {
                // SAFETY: the caller promises what `matrixmultiply` asks for.
                unsafe { $gemm(m, k, n, scale, a, ra, ca, b, rb, cb, 1.0, c, rc, 1) }
            }
        }
    };
}

real!(f32, matrixmultiply::sgemm);
real!(f64, matrixmultiply::dgemm);

/// Adds `scale · a · b` to the matrix in `into`, whose rows are `stride` apart.
///
/// # Panics
///
/// If the sizes do not match: a mistake of the caller's code, which no input can cause.
pub(super) fn add<T: Real>(
    scale: T,
    a: View<'_, T>,
    b: View<'_, T>,
    (into, stride): (&mut [T], usize),
) {
    let target = reach(a.rows, b.cols, (stride, 1));
    assert!(
        a.cols == b.rows
            && a.is_inside()
            && b.is_inside()
            && b.cols <= stride
            && target.is_some_and(|target| target <= into.len()),
        "matrices of {} × {} and {} × {} do not fit their slices",
        a.rows,
        a.cols,
        b.rows,
        b.cols
    );
    if a.rows == 0 || b.cols == 0 {
        return;
    }
    let step = |stride: usize| isize::try_from(stride).unwrap_or(isize::MAX);
    // SAFETY: `reach` of each matrix is at most the length of its slice, so all elements are inside; `into` is borrowed
    // mutably, so it overlaps neither `a` nor `b`; its rows do not overlap because `b.cols <= stride`. A stride that
    // does not fit `isize` belongs to a matrix of one row or one column, whose stride is multiplied by 0.
    unsafe {
        T::gemm(
            [a.rows, a.cols, b.cols],
            scale,
            [
                (a.values.as_ptr(), [step(a.row), step(a.col)]),
                (b.values.as_ptr(), [step(b.row), step(b.col)]),
            ],
            (into.as_mut_ptr(), step(stride)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_of_three_loops() {
        let a: Vec<f64> = (0..15).map(f64::from).collect();
        let b: Vec<f64> = (0..20).map(|idx| f64::from(idx * idx % 7)).collect();
        // (3 × 5) · (5 × 4), and aᵀ (5 × 3) · a (3 × 5).
        let mut found = vec![1.0; 3 * 6];
        add(2.0, View::rows(&a, 5), View::rows(&b, 4), (&mut found, 6));
        for row in 0..3 {
            for col in 0..6 {
                let sum: f64 = (0..5)
                    .filter(|_| col < 4)
                    .map(|idx| a[row * 5 + idx] * b[idx * 4 + col])
                    .sum();
                assert_eq!(found[row * 6 + col], 1.0 + 2.0 * sum);
            }
        }
        let mut square = vec![0.0; 25];
        let view = View::rows(&a, 5);
        add(1.0, view.transposed(), view, (&mut square, 5));
        assert_eq!(square[7], a[1] * a[2] + a[6] * a[7] + a[11] * a[12]);
    }

    #[test]
    #[should_panic(expected = "do not fit")]
    fn a_target_that_is_too_small_is_refused() {
        let a = [1.0_f32; 4];
        add(
            1.0,
            View::rows(&a, 2),
            View::rows(&a, 2),
            (&mut [0.0; 3], 2),
        );
    }
}
