//! Two results side by side: each figure with its ratio, and everything else that differs.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{BenchResult, Better, Figure, shown};
use crate::error::{Result, invalid};

/// Two results, compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What differs besides the figures, and so weakens the comparison.
    pub differs: Vec<String>,
    /// The figures that both results have.
    pub rows: Vec<Row>,
    /// Figures that only one of the results has.
    pub alone: Vec<String>,
}

/// One figure of both results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The first result's value.
    pub first: f64,
    /// The second result's value.
    pub second: f64,
    /// How many times better the second result is; below 1 it is worse.
    pub better: f64,
}

/// Compares two results of the same bench.
pub fn compare(first: &BenchResult, second: &BenchResult) -> Result<Comparison> {
    if first.bench != second.bench {
        return Err(invalid(format!(
            "cannot compare a result of `bench {}` with one of `bench {}`; use two results of the same benchmark",
            first.bench, second.bench
        )));
    }
    let find = |name: &str| second.figures.iter().find(|figure| figure.name == name);
    let rows = first
        .figures
        .iter()
        .filter_map(|figure| Some(row(figure, find(&figure.name)?)));
    let names = |result: &BenchResult| -> BTreeSet<String> {
        result
            .figures
            .iter()
            .map(|figure| figure.name.clone())
            .collect()
    };
    let (ours, theirs) = (names(first), names(second));
    Ok(Comparison {
        differs: differs(first, second),
        rows: rows.collect(),
        alone: ours.symmetric_difference(&theirs).cloned().collect(),
    })
}

fn row(first: &Figure, second: &Figure) -> Row {
    let (up, down) = match first.better {
        Better::More => (second.value, first.value),
        Better::Less => (first.value, second.value),
    };
    Row {
        name: first.name.clone(),
        unit: first.unit.clone(),
        first: first.value,
        second: second.value,
        better: if down == 0.0 && up == 0.0 {
            1.0
        } else {
            up / down
        },
    }
}

fn differs(first: &BenchResult, second: &BenchResult) -> Vec<String> {
    let mut found = Vec::new();
    let mut look = |name: &str, a: String, b: String| {
        if a != b {
            found.push(format!("{name}: {a} | {b}"));
        }
    };
    let (ours, theirs) = (&first.machine, &second.machine);
    look("CPU", ours.cpu.clone(), theirs.cpu.clone());
    look("cores", ours.cores.to_string(), theirs.cores.to_string());
    look(
        "memory",
        ours.memory_bytes.to_string(),
        theirs.memory_bytes.to_string(),
    );
    look("system", ours.system.clone(), theirs.system.clone());
    look(
        "kinograph",
        ours.kinograph.clone(),
        theirs.kinograph.clone(),
    );
    let id = |result: &BenchResult| {
        let dataset = result.dataset.as_ref();
        dataset.map_or("none".to_owned(), |dataset| dataset.id.clone())
    };
    look("dataset", id(first), id(second));
    let names: BTreeSet<&String> = first
        .settings
        .keys()
        .chain(second.settings.keys())
        .collect();
    for name in names {
        let of = |result: &BenchResult| {
            let value = result.settings.get(name);
            value.map_or("not set".to_owned(), Clone::clone)
        };
        look(name, of(first), of(second));
    }
    found
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.differs.is_empty() {
            writeln!(f, "the setups differ, so compare with care:")?;
            self.differs
                .iter()
                .try_for_each(|one| writeln!(f, "  {one}"))?;
            writeln!(f)?;
        }
        let width = self.rows.iter().map(|row| row.name.chars().count()).max();
        let width = width.unwrap_or(0);
        for row in &self.rows {
            let (first, second) = (shown(row.first), shown(row.second));
            let Row {
                name, unit, better, ..
            } = row;
            writeln!(
                f,
                "{name:width$}  {first:>12}  {second:>12}  {better:>7.2}×  {unit}"
            )?;
        }
        for name in &self.alone {
            writeln!(f, "{name}: only in one of the results")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(samples: f64, first_ms: f64) -> BenchResult {
        let mut result = BenchResult::new("loader", None);
        result.add("samples", samples, "per second", Better::More);
        result.add("first batch", first_ms, "ms", Better::Less);
        result
    }

    #[test]
    fn more_samples_and_an_earlier_batch_are_both_better() {
        let found = compare(&result(100.0, 50.0), &result(200.0, 25.0)).unwrap();
        assert!(found.differs.is_empty() && found.alone.is_empty());
        assert!(found.rows.iter().all(|row| row.better == 2.0), "{found}");
        assert!(found.to_string().contains("2.00×"));
    }

    #[test]
    fn other_differences_are_listed() {
        let (first, mut second) = (result(1.0, 1.0), result(1.0, 0.0));
        second.machine.cores += 1;
        second.set("threads", 3);
        second.add("more", 1.0, "", Better::More);
        let found = compare(&first, &second).unwrap();
        assert_eq!(found.differs.len(), 2, "{found}");
        assert!(found.differs[1].contains("threads: not set | 3"));
        assert_eq!(found.alone, ["more"]);
        second.bench = "au".to_owned();
        assert!(
            compare(&first, &second)
                .unwrap_err()
                .to_string()
                .contains("bench au")
        );
    }
}
