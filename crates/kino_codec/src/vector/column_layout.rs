//! How each column of a run is stored: as one value, as a copy, or as integers; and what is left to correct.

use std::collections::HashMap;

use super::encode::Run;
use super::fit::{Fit, Target, has_negative_zero};
use super::map::Map;
use super::page::Exception;
use super::quat::normalised;
use super::value::Value;

/// A column under construction.
pub(super) enum ColumnLayout<T> {
    /// One value; frames that differ are exceptions.
    Constant(T, Vec<usize>),
    /// A copy of an earlier column.
    Copy(usize),
    /// Integers.
    Fit(Fit),
}

impl<T> ColumnLayout<T> {
    /// The integers, if any.
    pub(super) fn integers(&self) -> &[i64] {
        match self {
            Self::Fit(fit) => &fit.integers,
            _ => &[],
        }
    }
}

impl Run<'_> {
    pub(super) fn target<'p>(&self, element: usize, protected: &'p [bool]) -> Target<'p> {
        Target {
            eps: self.abs.map_or(0.0, |abs| abs.eps(element)),
            protected,
            page_frames: self.page_frames,
        }
    }

    /// Decides how to store each column on its own.
    pub(super) fn layout<T: Value>(
        &self,
        values: &[Vec<T>],
        protected: &[bool],
    ) -> Vec<ColumnLayout<T>> {
        let mut layouts: Vec<ColumnLayout<T>> = Vec::with_capacity(values.len());
        // Columns keyed by a few of their values, to find equal ones.
        let mut seen: HashMap<[i64; 4], Vec<usize>> = HashMap::new();
        let mut known: Vec<Map> = Vec::new();
        for (element, column) in values.iter().enumerate() {
            let target = self.target(element, protected);
            if let Some(layout) = constant(&target, column) {
                layouts.push(layout);
                continue;
            }
            let key = [0, 1, 2, 3].map(|part| column[part * (column.len() - 1) / 3].ordered());
            let alike = seen.entry(key).or_default();
            let same = |other: &&usize| {
                let equal = values[**other].iter().zip(column).all(|(a, b)| a.same(*b));
                equal && self.target(**other, protected).eps == target.eps
            };
            if let Some(other) = alike.iter().find(same) {
                layouts.push(ColumnLayout::Copy(*other));
                continue;
            }
            if !self.is_in_quat(element) {
                alike.push(element);
            }
            let fit = target.best(column, &known);
            let is_grid = matches!(fit.map, Map::Times(_) | Map::Over(_));
            if is_grid && !known.contains(&fit.map) {
                known.push(fit.map);
                // The latest steps are the likeliest.
                known.drain(..known.len().saturating_sub(4));
            }
            layouts.push(ColumnLayout::Fit(fit));
        }
        layouts
    }

    fn is_in_quat(&self, element: usize) -> bool {
        let inside = |first: &usize| (*first..first + 4).contains(&element);
        self.quats.iter().any(inside)
    }

    /// Stores a quaternion so that it stays within the bound after renormalisation.
    ///
    /// Renormalisation may move a value by as much again as rounding did. Finer grids cost bits in every
    /// frame, coarser ones cost exceptions in some: the cheapest is chosen.
    pub(super) fn plan_quat<T: Value>(
        &self,
        first: usize,
        values: &[Vec<T>],
        protected: &[bool],
        layouts: &mut [ColumnLayout<T>],
    ) {
        let eps = |element: usize| self.target(element, protected).eps;
        let least = (first..first + 4).map(eps).fold(f64::INFINITY, f64::min);
        let mut best: Option<(f64, [Fit; 4])> = None;
        for part in [2.0, 1.8, 1.6, 1.4, 1.2, 1.0, 0.8] {
            let map = if least > 0.0 {
                Map::Times(part * least)
            } else {
                Map::Ordered
            };
            let mut fits = [0, 1, 2, 3].map(|idx| {
                let column = &values[first + idx];
                let map = map.with_zeros(has_negative_zero(column));
                self.target(first + idx, protected).fit(map, column)
            });
            let missed = self.missed_quats(first, values, protected, &fits);
            for fit in &mut fits {
                fit.exceptions.extend(&missed);
                fit.exceptions.sort_unstable();
                fit.exceptions.dedup();
            }
            let target = self.target(first, protected);
            let cost = fits.iter().map(|fit| target.cost::<T>(fit)).sum();
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, fits));
            }
        }
        let fits = best.into_iter().flat_map(|(_, fits)| fits);
        for (layout, fit) in layouts[first..].iter_mut().zip(fits) {
            *layout = ColumnLayout::Fit(fit);
        }
    }

    /// The frames in which a quaternion, after renormalisation, breaks its bound.
    fn missed_quats<T: Value>(
        &self,
        first: usize,
        values: &[Vec<T>],
        protected: &[bool],
        fits: &[Fit; 4],
    ) -> Vec<usize> {
        let allowed = |frame: usize| {
            let from = [0, 1, 2, 3].map(|idx| values[first + idx][frame]);
            let rounded =
                [0, 1, 2, 3].map(|idx| fits[idx].map.value::<T>(fits[idx].integers[frame]));
            let brought = normalised(rounded);
            let decoded = brought.unwrap_or(rounded);
            let near = |idx: usize| {
                let target = self.target(first + idx, protected);
                target.allows(frame, from[idx], decoded[idx])
            };
            (brought.is_some() || normalised(from).is_none()) && (0..4).all(near)
        };
        (0..self.frames).filter(|frame| !allowed(*frame)).collect()
    }

    /// The exceptions of every page.
    pub(super) fn exceptions<T: Value>(
        &self,
        values: &[Vec<T>],
        layouts: &[ColumnLayout<T>],
    ) -> Vec<Vec<Exception>> {
        let decoded = |element: usize, frame: usize| decoded(layouts, element, frame);
        let mut pages = vec![Vec::new(); self.frames.div_ceil(self.page_frames)];
        for element in 0..layouts.len() {
            let quat = self
                .quats
                .iter()
                .find(|first| (**first..**first + 4).contains(&element));
            for &frame in exceptions_of(layouts, element) {
                let plain = decoded(element, frame);
                let now = quat.map_or(plain, |first| {
                    let quat = [0, 1, 2, 3].map(|idx| decoded(first + idx, frame));
                    normalised(quat).map_or(plain, |quat| quat[element - first])
                });
                let (page, idx) = (frame / self.page_frames, frame % self.page_frames);
                let page_len = self.page_range(page).len();
                let correction = values[element][frame].ordered().wrapping_sub(now.ordered());
                pages[page].push(Exception {
                    position: element * page_len + idx,
                    correction,
                });
            }
        }
        pages
    }
}

/// A constant, if one value will do for (almost) every frame.
fn constant<T: Value>(target: &Target<'_>, column: &[T]) -> Option<ColumnLayout<T>> {
    let first = column[0];
    if column.iter().all(|value| value.same(first)) {
        return Some(ColumnLayout::Constant(first, Vec::new()));
    }
    if target.eps <= 0.0 || !T::IS_FLOAT {
        return None;
    }
    // Noise below the bound: use the middle of its range.
    let sizes = || column.iter().map(|value| value.to_f64());
    let (low, high) = (
        sizes().fold(f64::INFINITY, f64::min),
        sizes().fold(f64::NEG_INFINITY, f64::max),
    );
    let middle = T::from_f64(low + 0.5 * (high - low));
    let missed = |frame: &usize| !target.allows(*frame, column[*frame], middle);
    let free = |frame: &usize| target.protected.get(*frame) != Some(&true);
    let missed: Vec<usize> = (0..column.len()).filter(missed).collect();
    let too_many = missed.iter().any(free);
    (!too_many).then_some(ColumnLayout::Constant(middle, missed))
}

/// The value that a reader has before exceptions are applied and quaternions renormalised.
fn decoded<T: Value>(layouts: &[ColumnLayout<T>], element: usize, frame: usize) -> T {
    match &layouts[element] {
        ColumnLayout::Constant(value, _) => *value,
        ColumnLayout::Copy(from) => decoded(layouts, *from, frame),
        ColumnLayout::Fit(fit) => fit.map.value(fit.integers[frame]),
    }
}

/// The frames in which an element is an exception.
fn exceptions_of<T>(layouts: &[ColumnLayout<T>], element: usize) -> &[usize] {
    match &layouts[element] {
        ColumnLayout::Constant(_, exceptions) => exceptions,
        ColumnLayout::Copy(from) => exceptions_of(layouts, *from),
        ColumnLayout::Fit(fit) => &fit.exceptions,
    }
}
