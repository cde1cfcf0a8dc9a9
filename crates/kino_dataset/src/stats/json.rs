//! JSON has no NaN: a missing value is `null` there and NaN in Rust.

/// Serializes a list of values.
pub(super) mod numbers {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::stats) fn serialize<S: Serializer>(
        values: &[f64],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to_nullable(values).serialize(to)
    }

    pub(in crate::stats) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<f64>, D::Error> {
        Vec::deserialize(from).map(from_nullable)
    }

    pub(super) fn to_nullable(values: &[f64]) -> Vec<Option<f64>> {
        let nullable = |&value: &f64| value.is_finite().then_some(value);
        values.iter().map(nullable).collect()
    }

    pub(super) fn from_nullable(values: Vec<Option<f64>>) -> Vec<f64> {
        let number = |value: Option<f64>| value.unwrap_or(f64::NAN);
        values.into_iter().map(number).collect()
    }
}

/// Serializes a map of such lists.
pub(super) mod named_numbers {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::numbers::{from_nullable, to_nullable};

    pub(in crate::stats) fn serialize<S: Serializer>(
        lists: &BTreeMap<String, Vec<f64>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_map(lists.iter().map(|(name, list)| (name, to_nullable(list))))
    }

    pub(in crate::stats) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<String, Vec<f64>>, D::Error> {
        let lists = BTreeMap::<String, Vec<Option<f64>>>::deserialize(from)?;
        let lists = lists.into_iter();
        Ok(lists
            .map(|(name, list)| (name, from_nullable(list)))
            .collect())
    }
}
