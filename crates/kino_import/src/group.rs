//! Defects grouped for display: those that differ only in their numbers become one line.
//!
//! ```text
//! data/chunk-000/episode_000009.parquet: is missing      ┐
//! data/chunk-000/episode_000010.parquet: is missing      ├▶ 91 episodes: data/chunk-000/episode_000009–000099.parquet:
//! is missing
//! …                                                      ┘
//! ```

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::defect::{Action, Defect};

/// Fewer defects of a kind are listed one by one.
const FEW: usize = 3;

/// Up to this many different numbers are listed; of more, the first and the last.
const LISTED: usize = 5;

/// Defects of one kind.
#[derive(Debug)]
pub struct Group<'a> {
    /// What the import does about them.
    pub action: Action,
    /// Place and description, with the differing numbers merged.
    what: String,
    members: Vec<&'a Defect>,
}

impl Group<'_> {
    /// How many defects there are.
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// Place and description, in one line.
    pub fn text(&self) -> String {
        if self.members.len() == 1 {
            return self.what.clone();
        }
        let episodes: HashSet<_> = self
            .members
            .iter()
            .filter_map(|one| one.episode.as_ref())
            .collect();
        match episodes.len() {
            0 | 1 => format!("{} times: {}", self.members.len(), self.what),
            episodes => format!("{episodes} episodes: {}", self.what),
        }
    }
}

/// Groups defects of one kind, in the order of the first of each.
pub fn group_defects<'a>(defects: impl IntoIterator<Item = &'a Defect>) -> Vec<Group<'a>> {
    let mut order = Vec::new();
    let mut members: HashMap<(&'static str, String), Vec<&'a Defect>> = HashMap::new();
    for defect in defects {
        let key = (defect.action.name(), without_numbers(&line(defect)));
        let same = members.entry(key.clone()).or_default();
        if same.is_empty() {
            order.push(key);
        }
        same.push(defect);
    }
    let mut groups = Vec::new();
    for key in order {
        let same = members.remove(&key).unwrap_or_default();
        match same.len() {
            0..FEW => groups.extend(same.into_iter().map(|one| group(vec![one]))),
            _ => groups.push(group(same)),
        }
    }
    groups
}

fn group(members: Vec<&Defect>) -> Group<'_> {
    let lines: Vec<String> = members.iter().map(|one| line(one)).collect();
    Group {
        action: members.first().map_or(Action::Noted, |one| one.action),
        what: merged(&lines),
        members,
    }
}

fn line(defect: &Defect) -> String {
    format!("{}: {}", defect.place, defect.what)
}

/// A text as runs of digits and runs of other characters.
fn runs(text: &str) -> Vec<&str> {
    let mut runs = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_other = |c: char| c.is_ascii_digit() != first.is_ascii_digit();
        let (run, tail) = rest.split_at(rest.find(is_other).unwrap_or(rest.len()));
        runs.push(run);
        rest = tail;
    }
    runs
}

fn is_number(run: &str) -> bool {
    run.starts_with(|c: char| c.is_ascii_digit())
}

fn without_numbers(text: &str) -> String {
    let runs = runs(text);
    let shown = runs
        .iter()
        .map(|run| if is_number(run) { "#" } else { run });
    shown.collect()
}

/// Merges lines that differ only in their numbers.
fn merged(lines: &[String]) -> String {
    let all: Vec<Vec<&str>> = lines.iter().map(|line| runs(line)).collect();
    let Some(first) = all.first() else {
        return String::new();
    };
    let run = |idx: usize| {
        if is_number(first[idx]) {
            values(all.iter().filter_map(|runs| runs.get(idx).copied()))
        } else {
            first[idx].to_owned()
        }
    };
    (0..first.len()).map(run).collect()
}

/// Numbers as `9–99`, `9, 12, 40` or `9 … 99`.
fn values<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let sorted: BTreeSet<(u128, &str)> = all
        .map(|text| (text.parse().unwrap_or(u128::MAX), text))
        .collect();
    let texts: Vec<&str> = sorted.iter().map(|(_, text)| *text).collect();
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
        return String::new();
    };
    let is_run = last.0 - first.0 == sorted.len() as u128 - 1;
    match texts.len() {
        1 => texts.concat(),
        count if is_run && count > 2 => format!("{}–{}", first.1, last.1),
        2..=LISTED => texts.join(", "),
        _ => format!("{} … {}", first.1, last.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(defects: &[Defect]) -> Vec<String> {
        group_defects(defects).iter().map(Group::text).collect()
    }

    fn lost(place: String, what: &str, episode: usize) -> Defect {
        Defect::lost(place, what).of(&format!("episode_{episode}"))
    }

    #[test]
    fn many_defects_of_a_kind_become_one_line_and_few_are_listed() {
        let file = |idx| format!("data/chunk-000/episode_{idx:06}.parquet");
        let mut defects: Vec<_> = (9..100)
            .map(|idx| lost(file(idx), "is missing", idx))
            .collect();
        defects.insert(1, lost(file(3), "has 7 frames, meta says 8", 3));
        assert_eq!(
            texts(&defects),
            [
                "91 episodes: data/chunk-000/episode_000009–000099.parquet: is missing",
                "data/chunk-000/episode_000003.parquet: has 7 frames, meta says 8",
            ]
        );
        assert_eq!(
            texts(&defects[..3]),
            [
                "data/chunk-000/episode_000009.parquet: is missing",
                "data/chunk-000/episode_000010.parquet: is missing",
                "data/chunk-000/episode_000003.parquet: has 7 frames, meta says 8",
            ]
        );
    }

    #[test]
    fn numbers_with_gaps_are_not_shown_as_a_range() {
        let at = |numbers: &[usize]| -> Vec<Defect> {
            let one = |&idx: &usize| lost(format!("demo_{idx}"), "contains NaN", idx);
            numbers.iter().map(one).collect()
        };
        assert_eq!(
            texts(&at(&[1, 2, 9])),
            ["3 episodes: demo_1, 2, 9: contains NaN"]
        );
        assert_eq!(
            texts(&at(&[1, 2, 9, 10, 11, 99])),
            ["6 episodes: demo_1 … 99: contains NaN"]
        );
        let of_one: Vec<_> = (0..4)
            .map(|frame| lost(format!("frame {frame}"), "is torn", 7))
            .collect();
        assert_eq!(texts(&of_one), ["4 times: frame 0–3: is torn"]);
    }

    #[test]
    fn defects_with_different_actions_are_grouped_separately() {
        let mut defects: Vec<_> = (0..6)
            .map(|idx| lost(format!("demo_{idx}"), "is torn", idx))
            .collect();
        defects[3].action = Action::Kept;
        let groups = group_defects(&defects);
        let counts: Vec<_> = groups
            .iter()
            .map(|one| (one.action.name(), one.count()))
            .collect();
        assert_eq!(counts, [("lost", 5), ("kept", 1)]);
    }
}
