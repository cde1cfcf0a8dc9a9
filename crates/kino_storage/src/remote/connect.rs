//! From a URL to a client: which service, which credentials, which prefix of the keys.
//!
//! | URL | credentials, as the service's own tools find them |
//! |---|---|
//! | `s3://BUCKET/PATH` | `AWS_*` variables, the profile of `~/.aws` (`aws_profile.rs`), the role of the machine |
//! | `gs://BUCKET/PATH` | `GOOGLE_*` variables, `gcloud`'s application default credentials, the machine's service account |
//! | `az://CONTAINER/PATH`, `abfss://…` | `AZURE_*` variables, the managed identity |
//! | `https://HOST/PATH` | none; read only |
//! | `hf://datasets/NAME/PATH` | `HF_TOKEN`, or the token of `hf auth login` (`hub.rs`); read only |
//!
//! A custom S3 endpoint is `AWS_ENDPOINT_URL`, of the Hub `HF_ENDPOINT`.

use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, RetryConfig, StaticCredentialProvider,
};
use std::sync::Arc;
use url::Url;

use super::{aws_profile, hub};
use crate::error::{Result, invalid};
use crate::location::{Scheme, scheme_of};

/// A client, and where the dataset is in it.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) store: Arc<dyn ObjectStore>,
    /// The same for reads, which are repeated by `read.rs` alone.
    pub(super) reads: Arc<dyn ObjectStore>,
    pub(super) prefix: Path,
    pub(super) listing: Listing,
}

/// How objects are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Listing {
    /// The service can.
    Native,
    /// It cannot: a web server has no listing that all agree on.
    Missing,
    /// By the Hub's interface, under this prefix.
    Hub(Path),
}

impl Listing {
    /// Whether the storage can be written.
    pub(super) fn is_writable(&self) -> bool {
        *self == Self::Native
    }
}

/// Makes the clients for a URL.
pub(super) fn connect(url: &Url) -> Result<Connection> {
    let scheme = scheme_of(url)?;
    let (prefix, listing) = match scheme {
        Scheme::HuggingFace => return hub::connect(url),
        Scheme::Http => (Path::default(), Listing::Missing),
        _ => {
            let prefix = Path::from_url_path(url.path());
            let prefix = prefix.map_err(|error| invalid(error.to_string()))?;
            (prefix, Listing::Native)
        }
    };
    Ok(Connection {
        store: client(url, scheme, retries())?,
        reads: client(url, scheme, NO_RETRIES)?,
        prefix,
        listing,
    })
}

/// A client of a service.
fn client(url: &Url, scheme: Scheme, retries: RetryConfig) -> Result<Arc<dyn ObjectStore>> {
    let unusable = |error: object_store::Error| unusable(url, &error);
    Ok(match scheme {
        Scheme::S3 => Arc::new(s3(url, retries)?),
        Scheme::Gcs => Arc::new(gcs(url, retries).map_err(unusable)?),
        Scheme::Azure => Arc::new(azure(url, retries).map_err(unusable)?),
        Scheme::Http | Scheme::HuggingFace => {
            let options = client_options(url.scheme() == "http");
            Arc::new(web(url.as_str(), options, retries).map_err(unusable)?)
        }
    })
}

/// A client for a web server.
pub(super) fn web(
    url: &str,
    options: ClientOptions,
    retries: RetryConfig,
) -> object_store::Result<impl ObjectStore + use<>> {
    let builder = HttpBuilder::new().with_url(url);
    let builder = builder.with_client_options(options).with_retry(retries);
    builder.build()
}

/// Time-outs are those of `read.rs`: a large object on a slow line may take as long as it takes.
pub(super) fn client_options(allows_http: bool) -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(Duration::from_secs(5))
        .with_pool_max_idle_per_host(256)
        .with_allow_http(allows_http)
}

/// An error of a client that cannot be made.
pub(super) fn unusable(url: &Url, error: &object_store::Error) -> crate::error::StorageError {
    invalid(format!("cannot open {url}: {error}"))
}

fn s3(url: &Url, retries: RetryConfig) -> Result<impl ObjectStore + use<>> {
    let mut builder = AmazonS3Builder::from_env().with_url(bucket_only(url));
    let has_key = |builder: &AmazonS3Builder| {
        builder
            .get_config_value(&AmazonS3ConfigKey::AccessKeyId)
            .is_some()
    };
    let is_public = builder.get_config_value(&AmazonS3ConfigKey::SkipSignature);
    let profile = aws_profile::find()?;
    if let Some(profile) = profile {
        if !has_key(&builder) && is_public.is_none_or(|text| text != "true") {
            for (key, value) in profile.credentials()? {
                builder = builder.with_config(key, value);
            }
        }
        for (key, value) in profile.settings() {
            if builder.get_config_value(&key).is_none() {
                builder = builder.with_config(key, value);
            }
        }
    }
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    builder
        .with_client_options(client_options(is_plain))
        .with_retry(retries)
        .build()
        .map_err(|error| unusable(url, &error))
}

/// An emulator is named, and used without credentials, as by Google's own clients.
fn gcs(url: &Url, retries: RetryConfig) -> object_store::Result<impl ObjectStore + use<>> {
    let mut builder = GoogleCloudStorageBuilder::from_env().with_url(bucket_only(url));
    let emulator = variable("STORAGE_EMULATOR_HOST").map(|host| {
        if host.contains("://") {
            host
        } else {
            format!("http://{host}")
        }
    });
    if let Some(emulator) = &emulator {
        // Without credentials to send, writes would ask the machine's service account for some.
        let empty = StaticCredentialProvider::new(GcpCredential {
            bearer: String::new(),
        });
        builder = builder
            .with_base_url(emulator.trim_end_matches('/'))
            .with_credentials(Arc::new(empty))
            .with_skip_signature(true);
    }
    let is_plain = emulator.is_some_and(|emulator| emulator.starts_with("http://"));
    builder
        .with_client_options(client_options(is_plain))
        .with_retry(retries)
        .build()
}

fn azure(url: &Url, retries: RetryConfig) -> object_store::Result<impl ObjectStore + use<>> {
    let mut builder = MicrosoftAzureBuilder::from_env().with_url(bucket_only(url));
    // The names that `az storage` reads, which the client does not know.
    for (name, key) in [
        ("AZURE_STORAGE_ACCOUNT", AzureConfigKey::AccountName),
        ("AZURE_STORAGE_KEY", AzureConfigKey::AccessKey),
    ] {
        if let (None, Some(value)) = (builder.get_config_value(&key), variable(name)) {
            builder = builder.with_config(key, value);
        }
    }
    let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
    let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    builder
        .with_client_options(client_options(is_plain))
        .with_retry(retries)
        .build()
}

/// For reads, which `read.rs` repeats.
pub(super) const NO_RETRIES: RetryConfig = RetryConfig {
    backoff: BackoffConfig {
        init_backoff: Duration::from_millis(50),
        max_backoff: Duration::from_secs(2),
        base: 2.0,
    },
    max_retries: 0,
    retry_timeout: Duration::from_secs(6),
};

/// For everything else: answers that say "later" are repeated for some seconds.
pub(super) fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(50),
            max_backoff: Duration::from_secs(2),
            base: 2.0,
        },
        max_retries: 8,
        retry_timeout: Duration::from_secs(6),
    }
}

/// The URL without the path, which is the prefix of the keys.
fn bucket_only(url: &Url) -> String {
    let mut bucket = url.clone();
    bucket.set_path("");
    bucket.to_string()
}

/// A variable of the environment that is set to something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
