//! State shared by all files of a source: the options, the mapping, and what was found and noted so far.

use std::collections::HashSet;

use crate::error::Result;
use crate::hdf5::mapping::Mapping;
use crate::open::ImportOptions;

/// What is the same for all files of a source.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) options: &'a ImportOptions,
    pub(crate) mapping: &'a Mapping,
    /// Whether any episode has the dataset of each `[[stream]]`.
    pub(super) found: Vec<bool>,
    /// Notes already made: the next episode would repeat them.
    pub(super) noted: HashSet<String>,
    /// Which of task, split and success some episode has at the place named by the mapping.
    pub(super) labelled: HashSet<&'static str>,
}

impl<'a> Setup<'a> {
    pub(crate) fn new(options: &'a ImportOptions, mapping: &'a Mapping) -> Self {
        Self {
            options,
            mapping,
            found: vec![false; mapping.streams.len()],
            noted: HashSet::new(),
            labelled: HashSet::new(),
        }
    }

    /// Refuses a mapping that names something no episode has.
    pub(crate) fn check_all_found(&self) -> Result<()> {
        let mut labels = self.mapping.labels();
        if let Some((key, from)) = labels.find(|(key, _)| !self.labelled.contains(key)) {
            let from = &from.from;
            let what = format!("{key} = {{ from = {from:?} }}: no episode has this attribute");
            return Err(self.mapping.unfit(&what));
        }
        let missing = self.mapping.streams.iter().zip(&self.found);
        match missing.into_iter().find(|(_, found)| !**found) {
            None => Ok(()),
            Some((request, _)) => {
                let what = format!("no episode has {:?}", request.from);
                Err(self.mapping.wrong(request, &what))
            }
        }
    }
}
