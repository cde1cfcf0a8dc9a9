//! The profile of the AWS tools: `~/.aws/credentials` and `~/.aws/config`.
//!
//! ```text
//! [default]                      in credentials          [profile lab]             in config
//! aws_access_key_id = …                                  region = eu-central-1
//! aws_secret_access_key = …                              endpoint_url = https://minio.lab
//! ```
//!
//! Only keys, region and endpoint are read. A profile that gets its keys from elsewhere (SSO, a role, a program) is
//! refused with the command that turns them into variables.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;

use object_store::aws::AmazonS3ConfigKey;

use crate::error::{Result, invalid};

/// A file of the AWS tools is never longer.
const MAX_BYTES: u64 = 1 << 20;

/// The settings of a profile.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Profile {
    name: String,
    values: BTreeMap<String, String>,
}

/// The profile that `AWS_PROFILE` names, or the default one; `None` if there are no such files.
pub(super) fn find() -> Result<Option<Profile>> {
    let named = env::var("AWS_PROFILE").ok().filter(|name| !name.is_empty());
    let name = named.clone().unwrap_or_else(|| "default".to_owned());
    let mut values = BTreeMap::new();
    for (variable, file) in [
        ("AWS_CONFIG_FILE", "config"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
    ] {
        let folder = env::home_dir().map(|home| home.join(".aws").join(file));
        let Some(path) = env::var_os(variable).map(PathBuf::from).or(folder) else {
            continue;
        };
        let is_small = std::fs::metadata(&path).is_ok_and(|meta| meta.len() <= MAX_BYTES);
        if let Some(text) = is_small
            .then(|| std::fs::read_to_string(&path).ok())
            .flatten()
        {
            values.extend(section(&text, &name));
        }
    }
    if values.is_empty() && named.is_some() {
        return Err(invalid(format!(
            "AWS_PROFILE is `{name}`, but ~/.aws has no such profile; unset it, or create it with `aws configure --profile {name}`"
        )));
    }
    Ok((!values.is_empty()).then_some(Profile { name, values }))
}

impl Profile {
    /// Keys, if it has some.
    pub(super) fn credentials(&self) -> Result<Vec<(AmazonS3ConfigKey, String)>> {
        let keys = self.pick(&[
            ("aws_access_key_id", AmazonS3ConfigKey::AccessKeyId),
            ("aws_secret_access_key", AmazonS3ConfigKey::SecretAccessKey),
            ("aws_session_token", AmazonS3ConfigKey::Token),
        ]);
        let elsewhere = [
            "sso_session",
            "sso_start_url",
            "role_arn",
            "credential_process",
        ];
        let elsewhere = elsewhere
            .iter()
            .find(|name| self.values.contains_key(**name));
        if let (true, Some(source)) = (keys.is_empty(), elsewhere) {
            return Err(invalid(format!(
                "the AWS profile `{0}` gets its keys by `{source}`, which is not supported; run \
                 `eval \"$(aws configure export-credentials --profile {0} --format env)\"` first",
                self.name
            )));
        }
        Ok(keys)
    }

    /// What else is read of it.
    pub(super) fn settings(&self) -> Vec<(AmazonS3ConfigKey, String)> {
        self.pick(&[
            ("region", AmazonS3ConfigKey::Region),
            ("endpoint_url", AmazonS3ConfigKey::Endpoint),
        ])
    }

    fn pick(&self, names: &[(&str, AmazonS3ConfigKey)]) -> Vec<(AmazonS3ConfigKey, String)> {
        let found = names.iter().filter_map(|(name, key)| {
            let value = self.values.get(*name)?;
            Some((*key, value.clone()))
        });
        found.collect()
    }
}

/// The settings of a section, which `config` calls `profile NAME`, except the default one.
fn section(text: &str, name: &str) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut is_wanted = false;
    for line in text.lines() {
        let line = line.trim_end();
        if let Some(title) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            let title = title.trim();
            is_wanted = title.strip_prefix("profile ").map_or(title, str::trim) == name;
        } else if let Some((key, value)) = line.split_once('=')
            // Indented lines belong to a nested setting, such as those of `s3 =`.
            && is_wanted
            && !line.starts_with([' ', '\t', '#', ';'])
        {
            values.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[default]\naws_access_key_id = A\n# aws_session_token = no\n\n[profile lab]\nregion=eu\n\
                        s3 =\n  endpoint_url = nested\nrole_arn = arn:x\n[other]\nregion = us\n";

    #[test]
    fn a_profile_is_the_lines_of_its_section() {
        let default = section(TEXT, "default");
        assert_eq!(default.len(), 1);
        assert_eq!(default["aws_access_key_id"], "A");
        let lab = section(TEXT, "lab");
        assert_eq!(lab["region"], "eu");
        assert!(!lab.contains_key("endpoint_url"));
        assert!(section(TEXT, "nothing").is_empty());
    }

    #[test]
    fn keys_from_elsewhere_are_refused_with_what_to_do() {
        let lab = Profile {
            name: "lab".to_owned(),
            values: section(TEXT, "lab"),
        };
        let error = lab.credentials().unwrap_err().to_string();
        assert!(
            error.contains("role_arn") && error.contains("export-credentials"),
            "{error}"
        );
        assert_eq!(
            lab.settings(),
            [(AmazonS3ConfigKey::Region, "eu".to_owned())]
        );
    }
}
