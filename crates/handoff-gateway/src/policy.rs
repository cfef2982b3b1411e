//! The operator's policy file: which upstreams exist, what their models cost, which credential may go to which
//! of them, and where references resolve. TOML; an unknown key is refused.
//!
//! ```toml
//! [[upstream]]
//! name = "openai"
//! base_url = "https://api.openai.com"
//! wire = "openai-chat"
//! credential = { ref = "env://local/OPENAI_API_KEY", header = "authorization", scheme = "Bearer" }
//!
//! [[price]]               # US dollars per million tokens
//! upstream = "openai"
//! model = "gpt-4o"
//! input = "2.50"
//! cache_read = "1.25"
//! output = "10.00"
//!
//! [stores.local]
//! kind = "env"
//! allow = ["OPENAI_API_KEY"]
//! ```

mod file;
mod limits;
mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use handoff_protocol::Digest;
use handoff_protocol::reference::CredentialRef;
use http::HeaderName;
use reqwest::Url;

use crate::credential::{self, Resolver};
use crate::price::{InvalidPrice, ModelPrice};
use crate::wire::Wire;

pub use limits::Limits;
pub use watch::PolicyWatch;

/// A checked policy.
#[derive(Debug, Clone)]
pub struct Policy {
    upstreams: BTreeMap<String, Upstream>,
    prices: BTreeMap<(String, String), ModelPrice>,
    stores: BTreeMap<String, StorePolicy>,
    limits: Limits,
    digest: Digest,
}

/// One model server that calls may go to.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// The first part of the path at the door.
    pub name: String,
    /// What stands before `/v1/…`; no slash at its end.
    pub base_url: Url,
    /// What it speaks.
    pub wire: Wire,
    /// It plays a script and is told the epoch.
    pub scripted: bool,
    /// What is injected into calls to it, and into no others.
    pub credential: Option<CredentialRule>,
    /// The field that limits the output when the caller named none.
    pub max_tokens_field: MaxTokensField,
}

/// Which credential goes to an upstream, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialRule {
    /// Where it is found.
    pub reference: CredentialRef,
    /// The header that carries it.
    pub header: HeaderName,
    /// The word before it, such as `Bearer`; none puts the bare value.
    pub scheme: Option<String>,
}

/// What a Chat Completions server calls the limit of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensField {
    /// The older word, which most compatible servers know.
    #[default]
    MaxTokens,
    /// The newer one, which reasoning models demand.
    MaxCompletionTokens,
}

impl MaxTokensField {
    /// The key in the request.
    pub const fn key(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

/// Where a store's references resolve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorePolicy {
    /// Environment variables of the gateway: these and no others.
    Env {
        /// The names that may be read.
        allow: Vec<String>,
    },
    /// Files beneath a directory.
    File {
        /// The directory.
        root: PathBuf,
    },
}

/// Why a policy file is refused.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It cannot be read.
    #[error("the policy file {path} cannot be read")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not TOML of this shape.
    #[error("the policy file is malformed: {0}")]
    Malformed(#[from] toml::de::Error),
    /// A price is not one.
    #[error("the price of {model} at {upstream}: {source}")]
    Price {
        /// At which upstream.
        upstream: String,
        /// Of which model.
        model: String,
        /// What is wrong.
        #[source]
        source: InvalidPrice,
    },
    /// An upstream or a price contradicts the rules.
    #[error("{what}: {problem}")]
    Rule {
        /// What it is about.
        what: String,
        /// What is wrong.
        problem: &'static str,
    },
}

impl Policy {
    /// Reads and checks a policy file.
    ///
    /// # Errors
    /// See [`PolicyError`].
    pub fn load(path: &Path) -> Result<Self, PolicyError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| PolicyError::Unreadable { path: path.to_owned(), source })?;
        Self::parse(&text)
    }

    /// Checks the text of a policy file.
    ///
    /// # Errors
    /// See [`PolicyError`].
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        file::parse(text)
    }

    /// The text of a policy with one scripted upstream on this machine, named `scripted`, and a price for one
    /// model in US dollars per million tokens.
    pub fn scripted_text(base_url: &str, model: &str, input: &str, output: &str) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        format!(
            "# A model server on this machine that plays a script; its prices are made up.\n\
             [[upstream]]\nname = \"scripted\"\nbase_url = {}\nwire = \"openai-chat\"\n\
             scripted = true\nallow_plain_http = true\n\n\
             [[price]]\nupstream = \"scripted\"\nmodel = {}\ninput = {}\noutput = {}\n",
            quoted(base_url),
            quoted(model),
            quoted(input),
            quoted(output)
        )
    }

    /// The digest of the text that it was read from.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Every reference of its credentials.
    pub fn references(&self) -> Vec<CredentialRef> {
        let rules = self.upstreams().filter_map(|upstream| upstream.credential.as_ref());
        rules.map(|rule| rule.reference.clone()).collect()
    }

    /// Those of its references that this process cannot resolve, with the environment that it has.
    pub fn unresolved(&self) -> Vec<CredentialRef> {
        let resolver = Resolver::new(|name| std::env::var_os(name));
        credential::missing(&resolver, self, &self.references())
    }

    /// The upstream of this name.
    pub fn upstream(&self, name: &str) -> Option<&Upstream> {
        self.upstreams.get(name)
    }

    /// Every upstream, by name.
    pub fn upstreams(&self) -> impl Iterator<Item = &Upstream> {
        self.upstreams.values()
    }

    /// What a model costs at an upstream, if the operator has said so.
    pub fn price(&self, upstream: &str, model: &str) -> Option<&ModelPrice> {
        self.prices.get(&(upstream.to_owned(), model.to_owned()))
    }

    /// Where references into this store resolve.
    pub fn store(&self, name: &str) -> Option<&StorePolicy> {
        self.stores.get(name)
    }

    /// Sizes, times and counts.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}
