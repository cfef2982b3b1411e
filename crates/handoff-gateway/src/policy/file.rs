//! The policy file as it is written, and the checks that make a [`Policy`] of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use handoff_protocol::Digest;
use handoff_protocol::reference::CredentialRef;
use http::{HeaderName, header};
use reqwest::Url;
use serde::Deserialize;

use super::{CredentialRule, Limits, MaxTokensField, Policy, PolicyError, StorePolicy, Upstream};
use crate::price::{self, ModelPrice};
use crate::wire::Wire;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, rename = "upstream")]
    upstreams: Vec<UpstreamRow>,
    #[serde(default, rename = "price")]
    prices: Vec<PriceRow>,
    #[serde(default)]
    stores: BTreeMap<String, StoreRow>,
    #[serde(default)]
    limits: Limits,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpstreamRow {
    name: String,
    base_url: String,
    wire: Wire,
    #[serde(default)]
    scripted: bool,
    #[serde(default)]
    allow_plain_http: bool,
    #[serde(default)]
    credential: Option<CredentialRow>,
    #[serde(default)]
    max_tokens_field: MaxTokensField,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CredentialRow {
    #[serde(rename = "ref")]
    reference: CredentialRef,
    #[serde(default = "authorization")]
    header: String,
    #[serde(default)]
    scheme: Option<String>,
}

fn authorization() -> String {
    header::AUTHORIZATION.as_str().to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceRow {
    upstream: String,
    model: String,
    input: String,
    output: String,
    cache_read: Option<String>,
    cache_write_5m: Option<String>,
    cache_write_1h: Option<String>,
    attachment_tokens: Option<u64>,
    max_output: Option<u64>,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum StoreRow {
    Env { allow: Vec<String> },
    File { root: PathBuf },
}

pub(super) fn parse(text: &str) -> Result<Policy, PolicyError> {
    let file: File = toml::from_str(text)?;
    let mut upstreams = BTreeMap::new();
    for row in file.upstreams {
        let upstream = upstream(row)?;
        let name = upstream.name.clone();
        if upstreams.insert(name.clone(), upstream).is_some() {
            return Err(rule(format!("upstream {name}"), "it stands twice"));
        }
    }
    let mut prices = BTreeMap::new();
    for row in file.prices {
        let what = format!("price of {} at {}", row.model, row.upstream);
        if !upstreams.contains_key(&row.upstream) {
            return Err(rule(what, "there is no such upstream"));
        }
        let key = (row.upstream.clone(), row.model.clone());
        if prices.insert(key, model_price(row)?).is_some() {
            return Err(rule(what, "it stands twice"));
        }
    }
    let stores = file.stores.into_iter().map(|(name, row)| Ok((name.clone(), store(&name, row)?)));
    let stores = stores.collect::<Result<_, PolicyError>>()?;
    let digest = Digest::of(text.as_bytes());
    Ok(Policy { upstreams, prices, stores, limits: limits(file.limits)?, digest })
}

fn rule(what: String, problem: &'static str) -> PolicyError {
    PolicyError::Rule { what, problem }
}

fn upstream(row: UpstreamRow) -> Result<Upstream, PolicyError> {
    let refuse = |problem| rule(format!("upstream {}", row.name), problem);
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    if row.name.is_empty() || !row.name.bytes().all(plain) || row.name.starts_with('.') {
        return Err(refuse("a name has lower-case letters, digits and - _ . only"));
    }
    let url = Url::parse(&row.base_url).map_err(|_| refuse("base_url is not a URL"))?;
    let bare = url.username().is_empty() && url.password().is_none();
    if !bare || url.query().is_some() || url.fragment().is_some() || url.host_str().is_none() {
        return Err(refuse("base_url has scheme, host and path only"));
    }
    if is_doubled(&row.base_url, &url) {
        return Err(refuse("base_url says its scheme twice, or no port after the host's colon"));
    }
    let loopback = is_loopback(&url);
    match url.scheme() {
        "https" => {}
        "http" if !row.allow_plain_http => return Err(refuse("plain HTTP needs allow_plain_http = true")),
        "http" if !loopback && row.credential.is_some() => {
            return Err(refuse("no credential goes over plain HTTP to another machine"));
        }
        "http" => {}
        _ => return Err(refuse("base_url is https, or http with allow_plain_http = true")),
    }
    let credential = row.credential.map(|row| credential(row, &refuse)).transpose()?;
    Ok(Upstream {
        base_url: without_version(url),
        wire: row.wire,
        scripted: row.scripted,
        credential,
        max_tokens_field: row.max_tokens_field,
        name: row.name,
    })
}

fn credential(
    row: CredentialRow,
    refuse: &dyn Fn(&'static str) -> PolicyError,
) -> Result<CredentialRule, PolicyError> {
    let header: HeaderName = row.header.parse().map_err(|_| refuse("the credential's header is not one"))?;
    let framing = [
        header::HOST,
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::TRANSFER_ENCODING,
        header::CONNECTION,
        header::TE,
        header::UPGRADE,
    ];
    if framing.contains(&header) {
        return Err(refuse("a credential cannot be put in that header"));
    }
    let word = |scheme: &str| !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_graphic());
    if row.scheme.as_deref().is_some_and(|scheme| !word(scheme)) {
        return Err(refuse("the credential's scheme is one word"));
    }
    Ok(CredentialRule { reference: row.reference, header, scheme: row.scheme })
}

/// Whether what stands for the host is a second scheme, or has a colon and no port. The parser reads
/// `http://http://127.0.0.1:1` as the host `http` with no port, and calls would go there.
fn is_doubled(text: &str, url: &Url) -> bool {
    let authority = text.split_once("//").map_or("", |(_, rest)| rest);
    let authority = authority.split(['/', '\\']).next().unwrap_or_default();
    authority.trim().ends_with(':') || matches!(url.host_str(), Some("http" | "https"))
}

/// Whether the address cannot leave this machine. A name would have to be resolved, except the one that
/// RFC 6761 reserves.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Clients are told a base URL with or without its `/v1`; here it never ends in one.
fn without_version(mut url: Url) -> Url {
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/v1").unwrap_or(path).to_owned();
    url.set_path(&path);
    url
}

fn model_price(row: PriceRow) -> Result<ModelPrice, PolicyError> {
    let (upstream, model) = (row.upstream, row.model);
    let pico = |text: &str| {
        price::per_million_tokens(text).map_err(|source| PolicyError::Price {
            upstream: upstream.clone(),
            model: model.clone(),
            source,
        })
    };
    let input = pico(&row.input)?;
    let or_input = |text: Option<String>| text.map_or(Ok(input), |text| pico(&text));
    Ok(ModelPrice {
        input,
        output: pico(&row.output)?,
        cache_read: or_input(row.cache_read)?,
        cache_write_5m: or_input(row.cache_write_5m)?,
        cache_write_1h: or_input(row.cache_write_1h)?,
        attachment_tokens: row.attachment_tokens,
        max_output: row.max_output,
    })
}

fn store(name: &str, row: StoreRow) -> Result<StorePolicy, PolicyError> {
    let refuse = |problem| rule(format!("store {name}"), problem);
    match row {
        StoreRow::Env { allow } => Ok(StorePolicy::Env { allow }),
        StoreRow::File { root } if root.is_absolute() => Ok(StorePolicy::File { root }),
        StoreRow::File { .. } => Err(refuse("root is an absolute path")),
    }
}

fn limits(limits: Limits) -> Result<Limits, PolicyError> {
    let counts = [limits.body_bytes, limits.answer_bytes, limits.calls];
    let times = [limits.connect_ms, limits.first_byte_ms, limits.idle_ms, limits.call_ms];
    if counts.contains(&0) || times.contains(&0) || limits.default_max_tokens == 0 {
        return Err(rule("limits".to_owned(), "only drains, drain_ms and floor_max_tokens may be zero"));
    }
    if limits.bodies_bytes < limits.body_bytes || limits.bodies_bytes > u32::MAX as usize {
        return Err(rule("limits".to_owned(), "bodies_bytes is at least body_bytes, and below 4 GiB"));
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(text).expect_err(text).to_string()
    }

    fn upstream(rest: &str) -> String {
        format!("[[upstream]]\nname = \"u\"\nwire = \"openai-chat\"\n{rest}\n")
    }

    #[test]
    fn the_scripted_policy_is_a_policy() {
        let text = Policy::scripted_text("http://127.0.0.1:9/v1/", "scripted", "1", "2.5");
        let policy = parse(&text).expect("our own text");
        let upstream = policy.upstream("scripted").expect("it is there");
        assert!(upstream.scripted && upstream.credential.is_none());
        assert_eq!(upstream.base_url.as_str(), "http://127.0.0.1:9/");
        assert!(policy.price("scripted", "scripted").is_some());
        assert!(policy.price("scripted", "another").is_none());
    }

    #[test]
    fn unknown_keys_are_refused_everywhere() {
        for text in [
            "colour = 1",
            &upstream("base_url = \"https://a\"\ncolour = 1"),
            &upstream("base_url = \"https://a\"\ncredential = { ref = \"env://a/B\", colour = 1 }"),
            "[limits]\ncolour = 1",
            "[stores.a]\nkind = \"env\"\nallow = []\nroot = \"/x\"",
            "[stores.a]\nkind = \"vault\"\naddress = \"x\"",
        ] {
            assert!(matches!(parse(text), Err(PolicyError::Malformed(_))), "{text}");
        }
    }

    /// H-45
    #[test]
    fn plain_http_needs_a_word_and_never_carries_a_credential_away() {
        let credential = "credential = { ref = \"env://local/KEY\" }";
        assert!(refused(&upstream("base_url = \"http://127.0.0.1:1\"")).contains("allow_plain_http"));
        let remote = format!("base_url = \"http://models.example\"\nallow_plain_http = true\n{credential}");
        assert!(refused(&upstream(&remote)).contains("another machine"));
        let near = "base_url = \"http://127.0.0.1.example\"\nallow_plain_http = true\n";
        assert!(refused(&upstream(&format!("{near}{credential}"))).contains("another machine"));
        for host in ["127.0.0.1:1", "[::1]:1", "localhost:1"] {
            let local = format!("base_url = \"http://{host}\"\nallow_plain_http = true\n{credential}");
            assert!(parse(&upstream(&local)).is_ok(), "{host}");
        }
        assert!(parse(&upstream(&format!("base_url = \"https://models.example\"\n{credential}"))).is_ok());
    }

    #[test]
    fn an_address_is_an_address_and_nothing_more() {
        for bad in ["https://u:p@a", "https://a?x=1", "https://a#x", "ftp://a", "a", "unix:/x"] {
            assert!(parse(&upstream(&format!("base_url = \"{bad}\""))).is_err(), "{bad}");
        }
        for header in ["host", "content-length", "a b"] {
            let row = format!(
                "base_url = \"https://a\"\ncredential = {{ ref = \"env://a/B\", header = \"{header}\" }}"
            );
            assert!(parse(&upstream(&row)).is_err(), "{header}");
        }
    }

    #[test]
    fn a_scheme_that_stands_twice_and_a_port_that_is_empty_are_refused() {
        for bad in [
            "http://http://127.0.0.1:1/v1",
            "https://https://models.example",
            "http://https:/a",
            "HTTP://HTTP://a",
            "https://http",
            "https://https:443/v1",
            "https://models.example:",
            "https://models.example:/v1",
            "https://[::1]:/v1",
        ] {
            let row = upstream(&format!("base_url = \"{bad}\"\nallow_plain_http = true"));
            assert!(refused(&row).contains("its scheme twice"), "{bad}");
        }
        for good in ["https://http.example", "https://a/http://b", "https://[::1]/v1", "https://https.a:443"]
        {
            assert!(parse(&upstream(&format!("base_url = \"{good}\""))).is_ok(), "{good}");
        }
    }

    #[test]
    fn absent_is_not_zero() {
        let base = upstream("base_url = \"https://a\"");
        let price = "[[price]]\nupstream = \"u\"\nmodel = \"m\"\n";
        assert!(parse(&format!("{base}{price}input = \"1\"\n")).is_err(), "no output price");
        let free = format!("{base}{price}input = \"0\"\noutput = \"0\"\n");
        let policy = parse(&free).expect("an operator may say zero");
        assert_eq!(policy.price("u", "m").map(|price| price.input.pico()), Some(0));
        assert!(refused(&format!("{free}{price}input = \"1\"\noutput = \"1\"\n")).contains("twice"));
        let other = "[[price]]\nupstream = \"v\"\nmodel = \"m\"\ninput = \"0\"\noutput = \"0\"\n";
        assert!(refused(other).contains("no such upstream"));
        assert!(refused(&format!("{base}{price}input = \"-1\"\noutput = \"0\"\n")).contains("not a price"));
    }
}
