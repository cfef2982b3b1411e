//! One call: what is sent, how long its answer may take, and whether it may be sent again.

use std::time::Duration;

use bytes::Bytes;
use handoff_protocol::id::RequestId;
use handoff_protocol::request;
use handoff_protocol::{ErrorCode, Problem};
use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ClientError;
use crate::transport::Answer;

/// How long an ordinary call may take.
const ORDINARY: Duration = Duration::from_secs(30);
/// What a call that waits at the server may take beyond its wait.
const BEYOND_WAIT: Duration = Duration::from_secs(15);
/// Bytes of an answer that is a document.
const DOCUMENT_BYTES: usize = 64 << 20;

/// A request, ready to be sent once or several times.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Bytes>,
    pub(crate) media_type: &'static str,
    pub(crate) headers: Vec<(http::HeaderName, String)>,
    pub(crate) deadline: Duration,
    pub(crate) answer_bytes: usize,
    /// Sending it again has the effect of sending it once.
    pub(crate) repeatable: bool,
}

impl Call {
    fn new(method: Method, path: String, repeatable: bool) -> Self {
        Self {
            method,
            path,
            body: None,
            media_type: "application/json",
            headers: Vec::new(),
            deadline: ORDINARY,
            answer_bytes: DOCUMENT_BYTES,
            repeatable,
        }
    }

    /// Asks for something.
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path.into(), true)
    }

    /// Asks for something, narrowed by a query.
    pub(crate) fn query(path: impl Into<String>, query: &impl Serialize) -> Result<Self, ClientError> {
        let words = query_string(query)?;
        let path = path.into();
        Ok(Self::get(if words.is_empty() { path } else { format!("{path}?{words}") }))
    }

    /// Changes something. It may be sent again: it names a request id, or it is of the kind that can.
    pub(crate) fn post(path: impl Into<String>, body: &impl Serialize) -> Result<Self, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| ClientError::Unsendable(error.to_string()))?;
        Ok(Self { body: Some(body.into()), ..Self::new(Method::POST, path.into(), true) })
    }

    /// Stores bytes or asks for their size.
    pub(crate) fn bytes(method: Method, path: String, body: Option<Bytes>) -> Self {
        Self { body, media_type: "application/octet-stream", ..Self::new(method, path, true) }
    }

    /// Sending it twice does it twice.
    pub(crate) fn once(mut self) -> Self {
        self.repeatable = false;
        self
    }

    /// The server may hold the answer back for so long.
    pub(crate) fn waiting(mut self, wait_ms: u64) -> Self {
        self.deadline = Duration::from_millis(wait_ms).saturating_add(BEYOND_WAIT);
        self
    }

    /// The answer is at most so large.
    pub(crate) fn at_most(mut self, bytes: usize) -> Self {
        self.answer_bytes = bytes;
        self
    }

    /// With one more header.
    pub(crate) fn header(mut self, name: http::HeaderName, value: String) -> Self {
        self.headers.push((name, value));
        self
    }
}

impl Answer {
    /// The document, or the problem that stands in its place.
    pub(crate) fn document<T: DeserializeOwned>(&self, at: &str) -> Result<T, ClientError> {
        self.check(at)?;
        serde_json::from_slice(&self.body).map_err(|error| self.unreadable(at, error.to_string()))
    }

    /// Refuses everything but success.
    pub(crate) fn check(&self, at: &str) -> Result<(), ClientError> {
        if self.status.is_success() {
            return Ok(());
        }
        match serde_json::from_slice::<Problem>(&self.body) {
            Ok(problem) => Err(ClientError::Problem(Box::new(problem))),
            Err(_) => Err(self.unreadable(at, "it is no problem document".to_owned())),
        }
    }

    /// The refusal or failure that a status says without a body, which HEAD is answered with.
    pub(crate) fn bare_problem(&self, at: &str) -> ClientError {
        let code = match self.status.as_u16() {
            401 => ErrorCode::Unauthenticated,
            403 => ErrorCode::Forbidden,
            422 => ErrorCode::InvalidArgument,
            429 => ErrorCode::RateLimited,
            500 => ErrorCode::Internal,
            // Whatever of these it was, the same call may succeed in a moment.
            502..=504 => ErrorCode::StoreUnavailable,
            507 => ErrorCode::StorageFull,
            _ => return self.unreadable(at, "it is no status that this call is answered with".to_owned()),
        };
        let message = format!("{at} answered {} without a body", self.status);
        ClientError::Problem(Box::new(Problem::new(code, message, "see the log of `handoff serve`")))
    }

    pub(crate) fn unreadable(&self, at: &str, why: String) -> ClientError {
        ClientError::Unreadable { at: at.to_owned(), status: self.status.as_u16(), why }
    }
}

/// A flat struct as `key=value&…`.
fn query_string(query: &impl Serialize) -> Result<String, ClientError> {
    let unsendable = |why: &str| ClientError::Unsendable(why.to_owned());
    let fields = match serde_json::to_value(query) {
        Ok(serde_json::Value::Object(fields)) => fields,
        Ok(_) | Err(_) => return Err(unsendable("a query is a flat document")),
    };
    let word = |(key, value): (String, serde_json::Value)| {
        let value = match value {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        format!("{key}={}", percent_encoded(&value))
    };
    Ok(fields.into_iter().map(word).collect::<Vec<_>>().join("&"))
}

fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~,:".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// A body that carries a request id.
pub(crate) trait Identified {
    fn request_id(&mut self) -> &mut Option<RequestId>;

    /// The same body with a request id: a new one where the caller chose none.
    fn identified(mut self) -> Self
    where
        Self: Sized,
    {
        self.request_id().get_or_insert_with(new_request_id);
        self
    }
}

macro_rules! identified {
    ($($name:ident),*) => {$(
        impl Identified for request::$name {
            fn request_id(&mut self) -> &mut Option<RequestId> {
                &mut self.request_id
            }
        }
    )*};
}

identified!(Stage, Refresh, Provision, Push, Activate, ReportUsage, Raise, Terminate, WriteOff, Reasoned);

fn new_request_id() -> RequestId {
    uuid::Uuid::now_v7().to_string().parse().expect("digits, a-f and hyphens are a request id")
}

#[cfg(test)]
mod tests {
    use handoff_protocol::Status;
    use handoff_protocol::listing::TransferQuery;

    use super::*;

    #[test]
    fn a_query_is_flat_and_encoded() {
        let query = TransferQuery { limit: Some(5), ..TransferQuery::default() }
            .in_status(&[Status::Active, Status::Insolvent]);
        assert_eq!(query_string(&query).expect("flat"), "status=active,insolvent&unclosed=false&limit=5");
        assert_eq!(percent_encoded("a b&c=é"), "a%20b%26c%3D%C3%A9");
        assert!(query_string(&vec![1]).is_err());
    }

    #[test]
    fn a_body_keeps_the_id_that_its_caller_chose() {
        let id: RequestId = "mine".parse().expect("an id");
        let push = request::Push { request_id: Some(id.clone()), ..request::Push::default() };
        assert_eq!(push.identified().request_id, Some(id));
        assert!(request::Push::default().identified().request_id.is_some());
    }
}
