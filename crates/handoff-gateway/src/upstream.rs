//! The way to model servers: which headers go there, which come back, and what an error says about whether the
//! call arrived.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use reqwest::{Client, Request, Response, Url, redirect};

use crate::credential::Injection;
use crate::policy::{Limits, Policy, Upstream};
use crate::scrub::Scrub;

/// Tells an upstream that plays a script which epoch calls.
const EPOCH: HeaderName = HeaderName::from_static("x-handoff-epoch");

/// What an agent may say to an upstream besides its body. Everything else stays here, above all whatever it
/// sends as its own authority, in whichever header.
const PASSED_ON: [HeaderName; 3] =
    [header::ACCEPT, header::USER_AGENT, HeaderName::from_static("idempotency-key")];

/// What concerns one connection only (RFC 9110, 7.6.1), what the gateway writes itself, and what would set
/// state in the agent.
const NOT_PASSED_BACK: [HeaderName; 12] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::LOCATION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::SET_COOKIE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// Idle connections that are kept to one host: each is an open file.
const IDLE: usize = 32;

/// Connections to all upstreams.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    plain: Client,
    /// Only where an upstream needs it: a machine without certificates can still call one of its own.
    tls: Option<Client>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The connection was never made: nothing was sent.
    NotSent,
    /// It may have been sent.
    Unknown,
}

impl Connections {
    pub(crate) fn new(policy: &Policy) -> reqwest::Result<Self> {
        let needs_tls = policy.upstreams().any(|upstream| upstream.base_url.scheme() == "https");
        let tls = needs_tls.then(|| client(policy.limits()).https_only(true).build()).transpose()?;
        let plain = client(policy.limits()).tls_certs_only([]).build()?;
        Ok(Self { plain, tls })
    }

    /// Sends a call. Nothing is sent twice and no redirect is followed: every attempt that reaches a wire has
    /// passed the meter.
    pub(crate) async fn send(&self, upstream: &Upstream, request: Request) -> Result<Response, NoAnswer> {
        let client = match (upstream.base_url.scheme(), &self.tls) {
            ("http", _) => &self.plain,
            (_, Some(tls)) => tls,
            (_, None) => return Err(NoAnswer::NotSent),
        };
        client.execute(request).await.map_err(|error| {
            let not_sent = error.is_connect() || error.is_builder();
            tracing::info!(upstream = upstream.name, not_sent, error = %error.without_url(), "no answer");
            if not_sent { NoAnswer::NotSent } else { NoAnswer::Unknown }
        })
    }
}

fn client(limits: &Limits) -> reqwest::ClientBuilder {
    // RFC 6761 reserves this name for the machine itself, whatever a resolver says.
    let here = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))];
    Client::builder()
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .referer(false)
        .tcp_nodelay(true)
        .pool_max_idle_per_host(IDLE)
        .connect_timeout(limits.connect())
        .resolve_to_addrs("localhost", &here)
}

/// The request to an upstream.
pub(crate) fn request(
    upstream: &Upstream,
    from_agent: &HeaderMap,
    body: Bytes,
    epoch: u64,
    injection: Option<(HeaderName, HeaderValue)>,
) -> Request {
    let mut request = Request::new(Method::POST, url(upstream));
    let headers = request.headers_mut();
    for name in PASSED_ON {
        for value in from_agent.get_all(&name) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // What is compressed can neither be metered nor searched for a credential.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if upstream.scripted {
        headers.insert(EPOCH, HeaderValue::from(epoch));
    }
    if let Some((name, value)) = injection {
        headers.insert(name, value);
    }
    *request.body_mut() = Some(body.into());
    request
}

fn url(upstream: &Upstream) -> Url {
    let mut url = upstream.base_url.clone();
    let path = format!("{}{}", url.path().trim_end_matches('/'), upstream.wire.path());
    url.set_path(&path);
    url
}

/// The headers of an answer as the agent gets them.
pub(crate) fn passed_back(from_upstream: &HeaderMap, scrub: &Scrub) -> HeaderMap {
    let named = from_upstream.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<String> =
        named.flat_map(|value| value.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    let passes = |name: &HeaderName| {
        !NOT_PASSED_BACK.contains(name) && !named.iter().any(|other| other == name.as_str())
    };
    let mut headers = HeaderMap::new();
    for (name, value) in from_upstream.iter().filter(|(name, _)| passes(name)) {
        let clean = scrub.whole(Bytes::copy_from_slice(value.as_bytes()));
        if let Ok(value) = HeaderValue::from_maybe_shared(clean) {
            headers.append(name.clone(), value);
        }
    }
    headers
}

/// What goes out for an upstream that has a rule; `Err` where it has one and nothing was resolved.
pub(crate) fn injected(
    upstream: &Upstream,
    injection: Option<&Injection>,
) -> Result<Option<(HeaderName, HeaderValue)>, ()> {
    match (&upstream.credential, injection) {
        (None, _) => Ok(None),
        (Some(_), None) => Err(()),
        (Some(_), Some(injection)) => injection.header().map(Some).map_err(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(scripted: bool) -> Upstream {
        let text = format!(
            "[[upstream]]\nname = \"u\"\nbase_url = \"https://models.example/api/v1\"\n\
             wire = \"openai-chat\"\nscripted = {scripted}\n"
        );
        Policy::parse(&text).expect("a policy").upstream("u").expect("it is there").clone()
    }

    #[test]
    fn what_the_agent_sends_as_its_authority_stays_here() {
        let mut headers = HeaderMap::new();
        for name in [
            "authorization",
            "x-api-key",
            "api-key",
            "cookie",
            "openai-organization",
            "host",
            "x-goog-api-key",
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("from-the-agent"));
        }
        headers.insert(header::USER_AGENT, HeaderValue::from_static("agent/1"));
        let sent = request(&upstream(false), &headers, Bytes::from_static(b"{}"), 3, None);
        assert_eq!(sent.url().as_str(), "https://models.example/api/v1/chat/completions");
        assert!(!format!("{:?}", sent.headers()).contains("from-the-agent"));
        assert_eq!(sent.headers()[header::USER_AGENT], "agent/1");
        assert!(sent.headers().get(EPOCH).is_none(), "only scripted upstreams are told");
        let sent = request(&upstream(true), &headers, Bytes::new(), 3, None);
        assert_eq!(sent.headers()[EPOCH], "3");
    }

    #[test]
    fn what_comes_back_has_no_credential_and_no_hop() {
        let mut headers = HeaderMap::new();
        headers.insert("x-echo", HeaderValue::from_static("Bearer canary-secret!"));
        headers.insert("x-hop", HeaderValue::from_static("1"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close, X-Hop"));
        headers.insert(header::SET_COOKIE, HeaderValue::from_static("a=b"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        let back = passed_back(&headers, &Scrub::new(Some(b"canary-secret")));
        assert_eq!(back["x-echo"], "Bearer *************!");
        assert_eq!(back.len(), 2);
    }
}
